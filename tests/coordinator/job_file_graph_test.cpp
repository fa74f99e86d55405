// Needs, cycles, order, and what measures what.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/coordinator/job_file_support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

std::string order_of(const std::string& stages) {
  const JobFileResult result = parse(job_text("", stages));
  if (!result.spec) return errors_of(job_text("", stages));
  std::string order;
  for (const StageSpec& stage : result.spec->stages) order += stage.name + " ";
  return order;
}

std::string run_stages(const std::string& needs) {
  // "a:b,c d:" -> a needs b and c, d needs nothing.
  std::string stages = "{";
  for (std::size_t at = 0; at < needs.size();) {
    const std::size_t end = std::min(needs.find(' ', at), needs.size());
    const std::size_t colon = needs.find(':', at);
    stages += needs.substr(at, colon - at) + ": {kind: run, command: x, needs: [" +
              needs.substr(colon + 1, end - colon - 1) + "]}, ";
    at = end + 1;
  }
  return stages + "}";
}

}  // namespace

TEST_CASE("job file: stages stand after what they need, otherwise as written") {
  CHECK(order_of(run_stages("a: b: c:")) == "a b c ");
  CHECK(order_of(run_stages("c:a,b b:a a:")) == "a b c ");
  CHECK(order_of(run_stages("d:b,c x: b:a c:a a:")) == "x a b c d ");
}

TEST_CASE("job file: a circle is refused as its whole path, also of one stage") {
  CHECK(order_of(run_stages("a:a")).find("circle: a -> a (") != std::string::npos);
  CHECK(order_of(run_stages("a:b b:a")).find("circle: a -> b -> a (") != std::string::npos);
  CHECK(order_of(run_stages("x:b a:x b:c c:d d:b")).find("circle: b -> c -> d -> b (") !=
        std::string::npos);
  CHECK(fails_at("name: j\nmodel: {path: m}\nstages:\n  baseline: {}\n"
                 "  calibrate:\n    needs: [baseline, quantize]\n    data: d\n"
                 "  quantize:\n    needs: calibrate\n",
                 "9:12", "circle: calibrate -> quantize -> calibrate"));
  CHECK(fails_at(job_text("", "{baseline: {}, soak: {needs: [soak]}}"), "1:67",
                 "circle: soak -> soak"));
}

TEST_CASE("job file: a need that is not there, is twice, or is forgotten") {
  CHECK(fails_at(job_text("", "{baseline: {}, soak: {needs: [basline]}}"), "1:67",
                 "there is no stage `basline` (did you mean `baseline`?)"));
  CHECK(fails_at(job_text("", "{baseline: {}, soak: {needs: [baseline, baseline]}}"), "1:77",
                 "is there twice"));
  const std::pair<const char*, const char*> usual[] = {{"calibrate", "baseline"},
                                                       {"quantize", "calibrate"},
                                                       {"fuse", "quantize"},
                                                       {"evaluate", "fuse"},
                                                       {"soak", "evaluate"}};
  for (const auto& [kind, need] : usual) {
    const std::string text = job_text("", std::string("{baseline: {}, ") + kind + ": {}}");
    CHECK(fails_at(text, "1:52",
                   std::string(kind) + " usually needs " + need + ": add needs: " + need));
  }
  CHECK(fails_at(job_text("", "{baseline: {}, soak: {needs: []}}"), "1:52", "usually needs"));
}

TEST_CASE("job file: tasks and groups are shared, evaluate may say others") {
  const auto shared = parse(job_text(
      "evaluation: {tasks: t, heldout: {h: h1}, groups: {target: [qa]}}",
      "{baseline: {}, evaluate: {needs: baseline, tasks: u}}"));
  REQUIRE(shared.spec.has_value());
  CHECK(params_of(*shared.spec, "baseline") ==
        R"({"groups":{"target":["qa"]},"heldout":{"h":"/jobs/h1"},"tasks":"/jobs/t"})");
  CHECK(params_of(*shared.spec, "evaluate") ==
        R"({"groups":{"target":["qa"]},"heldout":{"h":"/jobs/h1"},"tasks":"/jobs/u"})");
  CHECK(stage_of(*shared.spec, "evaluate").inputs ==
        std::vector<std::string>{"/jobs/h1", "/jobs/u"});
  // Without the section, what evaluate says holds for the baseline too: else nothing to compare
  // with.
  const auto own = parse(job_text("", "{baseline: {}, evaluate: {needs: baseline, tasks: u}}"));
  REQUIRE(own.spec.has_value());
  CHECK(params_of(*own.spec, "baseline") == R"({"groups":{},"heldout":{},"tasks":"/jobs/u"})");
}

TEST_CASE("job file: red lines that nothing could measure are refused") {
  const std::string drop = "red_lines: {accuracy_drop: {target: 2%}}";
  const std::string stages = "{baseline: {}, evaluate: {needs: baseline}}";
  CHECK(fails_at(job_text(drop, stages), "1:52", "but there are no tasks"));
  CHECK(fails_at(job_text(drop + ", evaluation: {tasks: t, groups: {tarhet: [qa]}}", stages),
                 "1:52", "names `target`, but groups does not (did you mean `tarhet`?)"));
  CHECK(parse(job_text(drop + ", evaluation: {tasks: t, groups: {target: [qa]}}", stages))
            .spec.has_value());
  const std::string orphan = "{a: {kind: run, command: x}, evaluate: {needs: a}}";
  CHECK(fails_at(job_text("red_lines: {ttft_ms: <= 1.0x}", orphan), "1:66",
                 "no stage of kind baseline comes before it"));
  CHECK(parse(job_text("red_lines: {ttft_ms: <= 100}", orphan)).spec.has_value());
  const auto unchecked = parse(job_text("red_lines: {ttft_ms: <= 100}"));
  REQUIRE(unchecked.spec.has_value());
  CHECK(unchecked.warnings.at(0).find("no stage of kind evaluate") != std::string::npos);
}

TEST_CASE("job file: dense graphs and chains of 20,000 are ordered at once, more are refused") {
  std::string stages = "{";
  for (int i = 0; i < 256; ++i) {
    stages += "s" + std::to_string(i) + ": {kind: run, command: x, needs: [";
    for (int j = i + 1; j < 256; ++j) stages += "s" + std::to_string(j) + ", ";
    stages += "]}, ";
  }
  CHECK(parse(job_text("", stages + "}")).spec->stages.front().name == "s255");
  std::string chain = "{";
  for (int i = 0; i < 20'000; ++i) {
    chain += "s" + std::to_string(i) + ": {kind: run, command: x";
    if (i < 19'999) chain += ", needs: s" + std::to_string(i + 1);
    chain += "}, ";
  }
  CHECK(parse(job_text("", chain + "}")).spec->stages.front().name == "s19999");
  CHECK(order_of(chain + "x: {kind: run, command: x}}").find("20001 stages, the most is 20000") !=
        std::string::npos);
}
