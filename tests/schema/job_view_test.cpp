// What status, workers and resume show, as JSON and back.
#include "schema/job_view.h"

#include <doctest/doctest.h>

#include <string>

#include "schema/json.h"
#include "tests/schema/message_examples.h"

using namespace nightshift;

namespace {

JobView example_view() {
  StageView stage;
  stage.name = "quantize";
  stage.kind = "quantize";
  stage.state = StageState::running;
  stage.attempt = 2;
  stage.needs = {"calibrate"};
  stage.worker = "box1";
  stage.waiting_reason = "w";
  stage.reuse_reason = "r";
  AttemptPulse pulse;
  pulse.ref = test::example_ref();
  pulse.progress = ProgressReport{1, 2, "layers", 0, ""};
  stage.pulse = pulse;
  stage.pulse_age_ms = 7;
  stage.checkpoint_path = "/c";
  stage.checkpoint_digest = "d";
  stage.checkpoint_bytes = 9;
  stage.attempts = {{1, "box1", Outcome::oom, "out of memory", 10, 20, 10, "tail"},
                    {2, "box1", std::nullopt, "", 30, 0, 5, ""}};
  stage.metrics = {{"ppl", 7.5, "", "zh", "d"}};
  stage.red_lines = {{"ttft_ms", "<= 1", 1, 2, false, false, "x"}};
  stage.notes = {"note"};
  stage.group = "grid";
  JobView view;
  view.job = {3};
  view.name = "夜";
  view.user = "ada";
  view.state = JobState::failed;
  view.model_path = "/m";
  view.source_path = "/j.yaml";
  view.submitted_ms = 1;
  view.ended_ms = 2;
  view.stages = {stage};
  view.events = {{5, "event=stage_done"}};
  return view;
}

}  // namespace

TEST_CASE("job view: comes back without loss") {
  const Json json = to_json(example_view());
  const Result<JobView> view = job_view_from_json(json);
  REQUIRE_MESSAGE(view.ok(), view.error().line());
  CHECK(to_json(*view) == json);
  CHECK(view->stages.at(0).attempts.at(0).outcome == Outcome::oom);
  CHECK_FALSE(view->stages.at(0).attempts.at(1).outcome.has_value());
  CHECK(view->stages.at(0).pulse->progress->of == 2);
  CHECK(json.at("stages").at(0).at("state") == "running");
}

TEST_CASE("job view: a wrong one is refused with the place") {
  Json json = to_json(example_view());
  json["stages"][0]["state"] = "NEW";
  CHECK(job_view_from_json(json).error().what == "stages[0].state: is not one of the known words");
  json = to_json(example_view());
  json["stages"][0]["attempts"][0]["outcome"] = "fine";
  CHECK(job_view_from_json(json).error().what ==
        "stages[0].attempts[0].outcome: is not one of the known words");
  CHECK_FALSE(job_view_from_json(Json::array()).ok());
}

TEST_CASE("worker view and resume step: come back without loss") {
  const WorkerView worker{"box1", "host", 5, "silent", 1200, {1, 1, 8, 64, {"a"}, "cpu-avx2"},
                          {"3/quantize#2"}, -1};
  const auto back = worker_view_from_json(to_json(worker));
  REQUIRE(back.ok());
  CHECK(to_json(*back) == to_json(worker));
  const ResumeStep step{"fuse", true, "quantize runs again"};
  const auto step_back = resume_step_from_json(to_json(step));
  REQUIRE(step_back.ok());
  CHECK(step_back->rerun);
  CHECK(to_json(*step_back) == to_json(step));
  CHECK(resume_step_from_json(Json{{"stage", "fuse"}, {"rerun", 1}, {"reason", ""}})
            .error().what == "rerun: expected true or false, found number");
}
