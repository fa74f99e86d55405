// Stages that stand for many: expansion, matching of needs, and what is refused before it is made.
#include <doctest/doctest.h>

#include <string>

#include "tests/coordinator/job_file_support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

std::string stages_of(const std::string& stages) {
  const JobFileResult result = parse(job_text("", stages));
  if (!result.spec) return errors_of(job_text("", stages));
  std::string text;
  for (const StageSpec& stage : result.spec->stages) {
    text += stage.name + "(";
    for (const std::string& need : stage.needs) text += need + " ";
    text += ") ";
  }
  return text;
}

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("job file matrix: needs are matched by the axes that both have") {
  CHECK(stages_of("{q: {kind: run, command: x, matrix: {s: [Int8, w/4], n: 1..2}},"
                  " e: {kind: run, command: x, matrix: {s: [Int8, w/4]}, needs: q},"
                  " all: {kind: run, command: x, needs: e}}") ==
        "q-int8-1() q-int8-2() q-w_4-1() q-w_4-2() e-int8(q-int8-1 q-int8-2 ) "
        "e-w_4(q-w_4-1 q-w_4-2 ) all(e-int8 e-w_4 ) ");
  CHECK(stages_of("{f: {kind: run, command: x, foreach: [a, 5..6]},"
                  " g: {kind: run, command: x, foreach: [5], needs: f}}") ==
        "f-a() f-5() f-6() g-5(f-5 ) ");
}

TEST_CASE("job file matrix: exclude, include and ${axis}") {
  const auto result = parse(job_text(
      "",
      "{q: {kind: run, command: \"echo ${s} ${n} $${HOME}\", matrix: {s: [a, b], n: [1, 2],"
      " exclude: [{s: a, n: 2}], include: [{s: c, n: 9}]}, model: {path: \"models/${s}\"}}}"));
  for (const Error& error : result.errors) MESSAGE(error.line());
  REQUIRE(result.spec.has_value());
  std::string lines;
  for (const StageSpec& stage : result.spec->stages) {
    lines += stage.command.back() + " " + stage.model_path + " " + stage.group + "; ";
  }
  CHECK(lines ==
        "echo a 1 ${HOME} /jobs/models/a q; echo b 1 ${HOME} /jobs/models/b q; "
        "echo b 2 ${HOME} /jobs/models/b q; echo c 9 ${HOME} /jobs/models/c q; ");
  const auto back = job_spec_from_json(to_json_text(*result.spec), "test");
  REQUIRE(back.ok());
  CHECK(to_json_text(*back) == to_json_text(*result.spec));
}

TEST_CASE("job file matrix: what is wrong is said once, at its place") {
  const std::string run = "kind: run, command: x, ";
  CHECK(has(stages_of("{q: {" + run + "matrix: {a: 1..5000, b: 1..5000}}}"),
            "25000000 stages, 25000000 of them of `q`, the most is 20000"));
  CHECK(has(stages_of("{q: {" + run + "foreach: 1..9000000000000000}}"), "the most is 20000"));
  CHECK(has(stages_of("{q: {" + run + "foreach: 5..1}}"), "5..1 goes down"));
  CHECK(has(stages_of("{q: {" + run + "foreach: [a, a]}}"), "`a` is there twice"));
  CHECK(has(stages_of("{q: {" + run + "foreach: [a.b, a/b]}}"), "two stages would be named"));
  CHECK(has(stages_of("{q: {" + run + "matrix: {s: [a], exclude: [{s: z}]}}}"),
            "no combination has these values"));
  CHECK(has(stages_of("{q: {" + run + "matrix: {seed: [1], include: [{sed: 2}]}}}"),
            "there is no axis `sed` (did you mean `seed`?)"));
  CHECK(has(stages_of("{q: {kind: run, command: \"${sed}\", matrix: {seed: 1..9}}}"),
            "`${sed}` is no axis of this stage (did you mean `seed`?"));
  CHECK(has(stages_of("{q: {" + run + "foreach: [a]}, e: {" + run + "foreach: [b], needs: q}}"),
            "no stage of `q` has item=b"));
  CHECK(has(stages_of("{q: {" + run + "foreach: 1..5, needs: q}}"), "circle: q-1 -> q-1"));
  CHECK(has(stages_of("{a: {" + run + "matrix: {x: 1..9999}}, b: {" + run +
                      "matrix: {y: 1..9999}, needs: a}}"),
            "more than 500000 needs"));
  const auto typo = parse(job_text("", "{q: {" + run + "foreach: 1..5000, wal_limit: 1h}}"));
  CHECK(typo.errors.size() == 1);
}

TEST_CASE("job file: shares of a device, and a worker alone") {
  const auto resources = [](const std::string& text) {
    const auto result = parse(job_text("resources: {" + text + "}"));
    REQUIRE(result.spec.has_value());
    return result.spec->resources;
  };
  CHECK(resources("gpu: 50%").gpu_share_percent == 50);
  CHECK(resources("gpu: 50%").gpu == 0);
  CHECK(resources("gpu: 100%").gpu == 1);
  CHECK(resources("gpu: 2, exclusive: true").exclusive);
  CHECK(has(errors_of(job_text("resources: {gpu: 150%}")), "150% of a device"));
}
