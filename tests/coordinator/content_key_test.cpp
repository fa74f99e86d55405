#include "coordinator/content_key.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;

namespace {

JobSpec calibrating() {
  JobSpec spec = dag("baseline -> calibrate -> evaluate");
  for (StageSpec& stage : spec.stages) stage.kind = stage.name;
  StageSpec& calibrate = stage_of(spec, "calibrate");
  calibrate.params_json = R"({"data":"/here/data.jsonl","percentile":99.9,"samples":16})";
  calibrate.inputs = {"/here/data.jsonl"};
  calibrate.input_digests = {{"/here/data.jsonl", "cafe"}};
  return spec;
}

}  // namespace

TEST_CASE("content_key: names of jobs and places of files do not count") {
  const JobSpec here = calibrating();
  JobSpec there = calibrating();
  there.name = "another";
  there.source_path = "/elsewhere/job.yaml";
  there.model_path = "/elsewhere/m";
  StageSpec& calibrate = stage_of(there, "calibrate");
  calibrate.params_json = R"({"samples":16,"percentile":99.9,"data":"/there/data.jsonl"})";
  calibrate.inputs = {"/there/data.jsonl"};
  calibrate.input_digests = {{"/there/data.jsonl", "cafe"}};
  calibrate.resources.gpu = 2;
  calibrate.wall_limit_ms = 5;
  CHECK(stage_keys(here) == stage_keys(there));
}

TEST_CASE("content_key: what changes the outcome changes the key, and all keys below") {
  const std::vector<std::string> before = stage_keys(calibrating());
  JobSpec changed = calibrating();
  SUBCASE("a parameter") {
    stage_of(changed, "calibrate").params_json =
        R"({"data":"/here/data.jsonl","percentile":99.5,"samples":16})";
  }
  SUBCASE("the content of an input") {
    stage_of(changed, "calibrate").input_digests["/here/data.jsonl"] = "beef";
  }
  SUBCASE("the kind") { stage_of(changed, "calibrate").kind = "sensitivity"; }
  const std::vector<std::string> after = stage_keys(changed);
  CHECK(after[0] == before[0]);
  CHECK(after[1] != before[1]);
  CHECK(after[2] != before[2]);
}

TEST_CASE("content_key: bench counts for measuring kinds, red lines for judging ones") {
  const std::vector<std::string> before = stage_keys(calibrating());
  JobSpec changed = calibrating();
  changed.red_lines.accuracy_drop["target"] = 0.02;
  std::vector<std::string> after = stage_keys(changed);
  CHECK(after[1] == before[1]);
  CHECK(after[2] != before[2]);
  changed = calibrating();
  changed.bench.batch = 8;
  CHECK(stage_keys(changed)[0] != before[0]);
}

TEST_CASE("content_key: command and environment of a run stage") {
  JobSpec spec = dag("a");
  const std::string before = stage_keys(spec)[0];
  spec.stages[0].environment["SEED"] = "1";
  const std::string with_seed = stage_keys(spec)[0];
  spec.stages[0].command.push_back("--fast");
  CHECK(before != with_seed);
  CHECK(with_seed != stage_keys(spec)[0]);
}

TEST_CASE("content_key: the difference is told in a person's words") {
  const JobSpec before = calibrating();
  JobSpec after = calibrating();
  StageSpec& calibrate = stage_of(after, "calibrate");
  calibrate.params_json = R"({"data":"/here/data.jsonl","percentile":99.5,"samples":16})";
  CHECK(describe_difference(before, before.stages[1], after, calibrate) ==
        "percentile 99.9 -> 99.5");
  CHECK(describe_difference(before, before.stages[1], before, before.stages[1]).empty());
  calibrate.input_digests["/here/data.jsonl"] = "beef";
  CHECK(describe_difference(before, before.stages[1], after, calibrate).find(
            "content of /here/data.jsonl") != std::string::npos);
}
