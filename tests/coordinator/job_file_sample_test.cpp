// Whole job files: the sample, the one of the design, the JSON Schema, and files on disk.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "coordinator/job_file_keys.h"
#include "schema/content_hash.h"
#include "schema/json.h"
#include "tests/coordinator/job_file_support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

JobSpec sample() {
  const std::string path = repository_root() + "/jobs/k3-nano.yaml";
  JobFileResult result = parse_job_file(file_text(path), path);
  for (const Error& error : result.errors) MESSAGE(error.line());
  REQUIRE(result.spec.has_value());
  CHECK(result.warnings.empty());
  return std::move(*result.spec);
}

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    char name[] = "/tmp/nightshift-job-XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("job file: the sample is what it says") {
  const JobSpec spec = sample();
  const std::string jobs = repository_root() + "/jobs/";
  CHECK(spec.name == "k3-nano-overnight");
  CHECK(spec.source_path == jobs + "k3-nano.yaml");
  CHECK(spec.model_path == jobs + "models/k3-nano");
  CHECK(spec.bench.batch == 32);
  CHECK(spec.bench.warmup == 5);
  CHECK(spec.bench.repeats == 5);
  CHECK(spec.red_lines.throughput_tok_s->value == 1.05);
  CHECK(spec.red_lines.throughput_tok_s->relative);
  CHECK(spec.red_lines.token_match->value == 0.95);
  CHECK(spec.red_lines.accuracy_drop.at("general") == 0.05);
  CHECK(spec.retry.backoff_ms == 5000);
  CHECK(spec.watchdog.log_silence_ms == 600'000);
  CHECK(spec.watchdog.mode == WatchdogMode::act);
  std::string order;
  for (const StageSpec& stage : spec.stages) order += stage.name + " ";
  CHECK(order == "baseline calibrate quantize fuse evaluate soak ");
  CHECK(stage_of(spec, "fuse").needs == std::vector<std::string>{"quantize"});
  CHECK(stage_of(spec, "fuse").retry.backoff_ms == 5000);
  CHECK(stage_of(spec, "calibrate").inputs ==
        std::vector<std::string>{jobs + "data/calibration.jsonl"});
  CHECK(stage_of(spec, "baseline").inputs.size() == 5);
}

TEST_CASE("job file: parameters of the sample are complete, absolute and canonical") {
  const JobSpec spec = sample();
  const std::string data = repository_root() + "/jobs/data/";
  CHECK(
      params_of(spec, "calibrate") ==
      R"({"batch":8,"data":")" + data +
          R"(calibration.jsonl","max_tokens":2048,"percentile":99.9,"samples":1024,"steps":128})");
  CHECK(params_of(spec, "soak") ==
        R"({"concurrency":32,"data":")" + data +
            R"(calibration.jsonl","input_tokens":[16,256],"output_tokens":[8,64],)" +
            R"("requests":2000,"timeout":60000})");
  const std::string evaluation = R"("groups":{"general":["code","zh"],"target":["summary","qa"]},)"
                                 R"("heldout":{"code":")" + data + R"(heldout-code.jsonl","qa":")" +
                                 data + R"(heldout-qa.jsonl","summary":")" + data +
                                 R"(heldout-summary.jsonl","zh":")" + data +
                                 R"(heldout-zh.jsonl"})";
  CHECK(params_of(spec, "evaluate") == "{" + evaluation + R"(,"tasks":")" + data + "eval.jsonl\"}");
  CHECK(params_of(spec, "baseline") == params_of(spec, "evaluate"));
  const Json quantize = *parse_json(params_of(spec, "quantize"), "params");
  CHECK(quantize.at("keep") == Json({"*.self_attn.*", "*.mlp.gate", "lm_head"}));
  CHECK(quantize.at("activations") == "dynamic");
  CHECK(quantize.at("deviation_limit") == 0.05);
  CHECK(quantize.at("override") == Json::object());
  CHECK(quantize.at("tasks") == data + "eval.jsonl");
  const Json fuse = *parse_json(params_of(spec, "fuse"), "params");
  CHECK(fuse.at("same_precision_only") == true);
  CHECK(fuse.at("token_match_prompts") == 32);
  CHECK(fuse.at("rules") == Json::array());
}

TEST_CASE("job file: the sample's files are there, are hashed, and the spec survives the wire") {
  JobSpec spec = sample();
  for (const Error& error : check_job_files(spec)) FAIL_CHECK(error.line());
  REQUIRE(digest_inputs(spec).ok());
  CHECK(spec.model_digest.size() == 32);
  const StageSpec& calibrate = stage_of(spec, "calibrate");
  CHECK(calibrate.input_digests.at(calibrate.inputs[0]) == *hash_file(calibrate.inputs[0]));
  const auto back = job_spec_from_json(to_json_text(spec), "test");
  REQUIRE_MESSAGE(back.ok(), back.error().line());
  CHECK(to_json_text(*back) == to_json_text(spec));
}

TEST_CASE("job file: one with every key of the design lacks only the kinds not built yet") {
  const std::string text = R"(name: k3-overnight
model: {path: models/k3-nano}
night: {start: "22:00", deadline: "07:00", zone: Asia/Shanghai}
bench: {batch: 32, input_tokens: 512, output_tokens: 128, warmup: 5, repeats: 9}
red_lines:
  throughput_tok_s: ">= 3.0x"
  ttft_ms:          "<= 0.33x"
  peak_memory:      "<= 20GiB"
  accuracy_drop:    {target: 2%, general: 3%}
  token_match:      ">= 95%"
stages:
  baseline:  {}
  calibrate: {needs: baseline, data: data/calibration.jsonl, samples: 1024, steps: 128}
  sensitivity: {needs: calibrate}
  quantize:  {needs: sensitivity, scheme: auto, prefer: int8, keep: ["*.self_attn.*", "lm_head"],
              override: {"layers.5.mlp.*": bf16}}
  fuse:      {needs: quantize, ignore: ["*mask*"], same_precision_only: true}
  evaluate:  {needs: fuse, tasks: data/eval.jsonl, groups: {target: [summary, qa], general: [zh]},
              repair: {rounds: 3, from: quantize}}
  soak:      {needs: evaluate, requests: 2000}
  export:    {needs: soak, formats: [compressed-tensors, gguf]}
watchdog: {interval: 5m, log_silence: 10m, min_disk_free: 10GiB,
           memory: {max_growth: 1GiB, min_free: 2GiB}, mode: act}
retry: {max: 2, backoff: 30s}
notify:
  - {on: [done, failed, rolled_back], webhook: "https://example.org/x"}
  - {on: [done, failed], email: {to: a@example.org, smtp: mail}}
resources: {gpu: 1, memory: 24GiB, temp: /scratch}
)";
  const JobFileResult result = parse(text);
  REQUIRE(result.errors.size() == 2);
  CHECK(result.errors[0].where == "/jobs/j.yaml:14:3");
  CHECK(result.errors[0].what ==
        "stages.sensitivity: kind `sensitivity` is not built yet in this version");
  CHECK(result.errors[0].code == ErrorCode::unsupported);
  CHECK(result.errors[1].where == "/jobs/j.yaml:21:3");
  CHECK(result.warnings.size() == 6);
}

TEST_CASE("job file: the JSON Schema has exactly the keys of the parser") {
  const std::string path = repository_root() + "/schema/job.schema.json";
  const auto schema = parse_json(file_text(path), path);
  REQUIRE_MESSAGE(schema.ok(), schema.error().line());
  for (const auto& [section, keys] : job_file_sections()) {
    CAPTURE(section);
    REQUIRE(schema->at("$defs").contains(section));
    const Json& properties = schema->at("$defs").at(section).at("properties");
    const auto& kinds = stage_kinds();
    const bool is_kind = std::find(kinds.begin(), kinds.end(), section) != kinds.end();
    const std::vector<std::string> expected = is_kind ? stage_keys_of(section) : keys;
    for (const std::string& key : expected) CHECK_MESSAGE(properties.contains(key), key);
    CHECK(properties.size() == expected.size());
  }
  for (const std::string& kind : stage_kinds()) {
    CHECK(schema->at("$defs")
              .at("job")
              .at("properties")
              .at("stages")
              .at("properties")
              .contains(kind));
  }
}

TEST_CASE("job file: what is missing on disk is said by name, all at once") {
  const TemporaryFolder folder;
  const auto parsed = parse_job_file(
      job_text("night: {zone: Mars/Olympus}",
               "{baseline: {}, calibrate: {needs: baseline, data: empty.jsonl},"
               " two: {kind: calibrate, needs: baseline, data: absent.jsonl}}"),
      folder.path + "/j.yaml");
  REQUIRE(parsed.spec.has_value());
  std::ofstream(folder.path + "/empty.jsonl").close();
  std::string lines;
  for (const Error& error : check_job_files(*parsed.spec)) lines += error.line() + "\n";
  CHECK(lines.find(folder.path + "/m: the model folder is not there") != std::string::npos);
  CHECK(lines.find("empty.jsonl: the data of stage calibrate is empty") != std::string::npos);
  CHECK(lines.find("absent.jsonl: cannot find the data of stage two") != std::string::npos);
  if (std::filesystem::is_directory("/usr/share/zoneinfo")) {
    CHECK(lines.find("there is no time zone `Mars/Olympus`") != std::string::npos);
  }
  std::filesystem::create_directory(folder.path + "/m");
  lines = check_job_files(*parsed.spec).front().line();
  CHECK(lines.find("no config.json") != std::string::npos);
  JobSpec spec = *parsed.spec;
  CHECK_FALSE(digest_inputs(spec).ok());
}

TEST_CASE("job file: reading one is bounded, with both numbers") {
  const TemporaryFolder folder;
  CHECK(read_job_file(folder.path + "/absent.yaml").error().code == ErrorCode::not_found);
  CHECK_FALSE(read_job_file(folder.path).ok());
  const std::string path = folder.path + "/large.yaml";
  std::ofstream(path) << "name: j\n";
  CHECK(*read_job_file(path) == "name: j\n");
  std::filesystem::resize_file(path, job_file_bytes_max + 1);
  const std::string line = read_job_file(path).error().line();
  CHECK(line.find("4194305 bytes, the most is 4194304") != std::string::npos);
  CHECK(parse(std::string(job_file_bytes_max + 1, ' ')).errors.size() == 1);
}
