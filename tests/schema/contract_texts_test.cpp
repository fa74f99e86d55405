// The texts of the contract: job spec, stage order, report lines, manifest.
#include <doctest/doctest.h>

#include <string>

#include "schema/json.h"
#include "schema/stage_contract.h"
#include "tests/schema/message_examples.h"

using namespace nightshift;

namespace {

template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().line();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Json spec_json() { return *parse_json(to_json_text(test::example_spec()), "test"); }

std::string refusal(const Json& spec) {
  return error_of(job_spec_from_json(dump_json(spec), "spec.json"));
}

}  // namespace

TEST_CASE("job spec: comes back without loss") {
  const std::string text = to_json_text(test::example_spec());
  const Result<JobSpec> spec = job_spec_from_json(text, "test");
  REQUIRE_MESSAGE(spec.ok(), error_of(spec));
  CHECK(to_json_text(*spec) == text);
  CHECK(spec->night.zone == "Asia/Shanghai");
  CHECK(spec->priority == -3);
  CHECK(spec->watchdog.mode == WatchdogMode::log);
  CHECK(spec->notify.at(1).email_smtp == "smtp://mail");
  CHECK(spec->red_lines.throughput_tok_s->relative);
  const StageSpec& script = spec->stages.at(1);
  CHECK(script.params_json == R"({"checkpoint":true,"x":1e-07})");
  CHECK(script.command.at(2) == "true");
  CHECK(script.input_digests.at("/data/a.jsonl") == "d1");
  CHECK(script.resources.temp == "/t");
  CHECK(script.retry.max == 0);
}

TEST_CASE("job spec: what a peer may not send") {
  Json spec = spec_json();
  CHECK(refusal(spec).empty());

  spec["stages"] = Json::array();
  CHECK(has(refusal(spec), "spec.json: stages: there is none"));

  spec = spec_json();
  spec["stages"].push_back(spec["stages"][0]);
  CHECK(has(refusal(spec), "two are named `baseline`"));

  spec = spec_json();
  spec["stages"][0]["needs"] = {"own-toolkit"};
  CHECK(has(refusal(spec), "`baseline` needs `own-toolkit`, which is not among"));

  spec = spec_json();
  spec["stages"][1]["needs"] = {"own-toolkit"};
  CHECK(has(refusal(spec), "`own-toolkit` needs `own-toolkit`"));

  spec = spec_json();
  spec["stages"][1]["name"] = "../x";
  CHECK(has(refusal(spec), "stages[1].name: a stage name has"));

  spec = spec_json();
  spec["bench"]["batch"] = 0;
  CHECK(has(refusal(spec), "bench.batch: 0 is out of range"));

  spec = spec_json();
  spec["stages"][1]["params"] = "{}";
  CHECK(has(refusal(spec), "stages[1].params: expected a map, found string"));

  spec = spec_json();
  spec.erase("watchdog");
  CHECK(has(refusal(spec), "watchdog: is missing"));
  CHECK_FALSE(job_spec_from_json("[]", "x").ok());
  CHECK_FALSE(job_spec_from_json("{", "x").ok());
}

TEST_CASE("stage order: comes back without loss, and parameters are an object for scripts") {
  const std::string text = to_json_text(test::example_order());
  const Result<StageOrder> order = stage_order_from_json(text, "spec.json");
  REQUIRE_MESSAGE(order.ok(), error_of(order));
  CHECK(to_json_text(*order) == text);
  CHECK(order->params_json == test::example_order().params_json);
  CHECK(order->inputs.at("calibrate") == "/c/calibrate.1");
  CHECK(parse_json(text, "test")->at("params").at("wait_ms") == 5000);
  CHECK(has(error_of(stage_order_from_json("{}", "spec.json")), "spec.json: job: is missing"));
}

TEST_CASE("report line: each kind comes back") {
  const Report reports[] = {
      ProgressReport{3, 10, "samples", 12.5, "tok/s"},
      MetricReport{"ppl", 7.123456789012345, "", "zh", "d1"},
      PhaseReport{"loading", 120},
      CheckpointReport{"layers", 4},
      RedLineReport{{"ttft_ms", "<= 120", 120, 99, false, true, "measured 99"}},
      NoteReport{"层 5 put back"},
      ErrorReport{"no tokenizer.json", "/models/x", "copy it there"}};
  const char* names[] = {"progress", "metric", "phase", "checkpoint", "red_line", "note", "error"};
  for (std::size_t i = 0; i < std::size(reports); ++i) {
    const std::string line = to_line(reports[i]);
    CHECK(line.find(std::string("{\"") + names[i] + "\":{") == 0);
    CHECK_FALSE(has(line, "\n"));
    const Result<Report> back = parse_report(line);
    REQUIRE_MESSAGE(back.ok(), error_of(back));
    CHECK(back->index() == i);
    CHECK(to_line(*back) == line);
  }
}

TEST_CASE("report line: a script may leave out what has a default") {
  const auto progress = parse_report(R"({"progress": {"done": 3.0, "of": 10}})");
  REQUIRE_MESSAGE(progress.ok(), error_of(progress));
  CHECK(std::get<ProgressReport>(*progress).done == 3);
  CHECK(parse_report(R"({"metric": {"name": "x", "value": 1}})").ok());
  CHECK(parse_report(R"({"phase": {"name": "export", "quiet_s": null}})").ok());
  CHECK(parse_report(R"({"error": {"what": "bad data"}})").ok());
  CHECK(parse_report(R"({"note": {"text": "a", "newer": 1}})").ok());
}

TEST_CASE("report line: a malformed one says what is wrong") {
  const std::pair<std::string, const char*> bad[] = {
      {"", "report line"},
      {"Epoch 3 done", "report line"},
      {"[]", "expected an object with one key"},
      {R"({"progress":{"done":1},"phase":{"name":"x"}})", "expected an object with one key"},
      {R"({"progess":{"done":1}})", "did you mean `progress`?"},
      {R"({"progress":{"of":1}})", "done: is missing"},
      {R"({"progress":{"done":"3"}})", "done: expected a whole number"},
      {R"({"progress":{"done":2.5}})", "done: is not whole"},
      {R"({"progress":{"done":-1}})", "done: -1 is out of range"},
      {R"({"metric":{"name":"x"}})", "value: is missing"},
      {R"({"metric":{"name":"","value":1}})", "name: a name has"},
      {R"({"metric":{"name":"x","value":NaN}})", "report line"},
      {R"({"metric":{"name":"x","value":1e999}})", ""},
      {R"({"phase":{"name":"x","quiet_s":-1}})", "quiet_s is below 0"},
      {R"({"note":"text"})", "expected a map of fields, found string"},
      {std::string("{\"note\":{\"text\":\"\xff\"}}"), ""},
      {std::string(contract::report_line_bytes_max + 1, ' '), "the most is 65536"},
      {std::string(60'000, '['), ""}};
  for (const auto& [line, part] : bad) {
    const auto report = parse_report(line);
    CAPTURE(line.substr(0, 80));
    REQUIRE_FALSE(report.ok());
    CHECK_MESSAGE(has(error_of(report), part), error_of(report));
  }
}

TEST_CASE("manifest: comes back, sums up, and its digest sees every part") {
  const std::string hash(32, 'a');
  const Manifest manifest{{{"config.json", 10, hash}, {"sub/model.safetensors", 20, hash}}};
  const auto back = manifest_from_json(to_json_text(manifest), "manifest.json");
  REQUIRE_MESSAGE(back.ok(), error_of(back));
  CHECK(back->digest() == manifest.digest());
  CHECK(manifest.total_bytes() == 30);
  CHECK(manifest.digest().size() == 32);
  for (const auto& change :
       {Manifest{{{"config.jsoN", 10, hash}, manifest.files[1]}},
        Manifest{{{"config.json", 11, hash}, manifest.files[1]}},
        Manifest{{{"config.json", 10, std::string(32, 'b')}, manifest.files[1]}},
        Manifest{{manifest.files[0]}}, Manifest{}}) {
    CHECK(change.digest() != manifest.digest());
  }
}

TEST_CASE("manifest: paths that leave the folder, bad hashes and disorder are refused") {
  const std::string hash(32, 'a');
  const auto refused = [](const Manifest& manifest, const char* part) {
    const auto back = manifest_from_json(to_json_text(manifest), "manifest.json");
    REQUIRE_FALSE(back.ok());
    CHECK_MESSAGE(has(error_of(back), part), error_of(back));
    CHECK(back.error().code == ErrorCode::corrupt);
  };
  for (const char* path : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/"}) {
    refused({{{path, 1, hash}}}, "leaves the folder");
  }
  refused({{{"a", 1, "short"}}}, "no hash of 32 digits");
  refused({{{"b", 1, hash}, {"a", 1, hash}}}, "not in order");
  refused({{{"a", 1, hash}, {"a", 1, hash}}}, "there twice");
  refused({{{"a", INT64_MAX, hash}, {"b", 1, hash}}}, "add up to too much");
}
