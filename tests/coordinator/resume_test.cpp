#include "coordinator/resume.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;
using nightshift::testing::World;

namespace {

std::string told(const std::vector<ResumeStep>& steps) {
  std::string text;
  for (const ResumeStep& step : steps) {
    text += fmt::format("{} {}: {}\n", step.stage, step.rerun ? "again" : "kept", step.reason);
  }
  return text;
}

std::string plan(const World& world, JobId job, const std::string& from = "",
                 const std::optional<JobSpec>& spec = std::nullopt) {
  const auto planned = plan_resume(world.core(), job, spec, from, nullptr);
  return planned.ok() ? told(planned->steps) : planned.error().line();
}

void run_all(World& world, JobId job) {
  for (int i = 0; i < 100 && !world.core().live.empty(); ++i) {
    const AttemptRef ref = world.core().live.begin()->second.ref;
    world.complete("box", ref);
  }
  REQUIRE(world.core().jobs.at(job).state == JobState::done);
}

JobSpec with_params(const std::string& stage, const std::string& params) {
  JobSpec spec = dag("baseline -> calibrate -> quantize\nbaseline -> profile");
  for (StageSpec& each : spec.stages) each.params_json = "{}";
  stage_of(spec, stage).params_json = params;
  return spec;
}

}  // namespace

TEST_CASE("resume: what failed runs again, what is done is kept, with reasons") {
  World world;
  const JobId job = world.submit(dag("a -> b -> c\na -> d"));
  world.hello("box", 1);
  world.complete("box", {job, "a", {1}});
  world.started("box", {job, "b", {1}});
  world.finished("box", {job, "b", {1}}, Outcome::error, "no such tokenizer");
  world.complete("box", {job, "d", {1}});
  CHECK(plan(world, job) ==
        "a kept: done, key unchanged\n"
        "b again: failed: error: no such tokenizer\n"
        "c again: depends on b, which runs again\n"
        "d kept: done, key unchanged\n");
  REQUIRE(world.resume(job).ok());
  CHECK(world.states(job) == "a done, b assigned#2, c waiting, d done");
  CHECK(world.core().jobs.at(job).state == JobState::active);
  run_all(world, job);
  CHECK(world.stage(job, "b").attempts.size() == 2);
  CHECK(world.stage(job, "a").attempts.size() == 1);
}

TEST_CASE("resume: attempts keep growing, retry budgets begin anew") {
  World world;
  JobSpec spec = dag("a");
  spec.stages[0].retry = {1, 0};
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i <= 2; ++i) {
      world.finished("box", {job, "a", {2 * round + i}}, Outcome::crash);
    }
    CHECK(world.states(job) == fmt::format("a failed#{}", 2 * round + 2));
    REQUIRE(world.resume(job).ok());
  }
  CHECK(world.states(job) == "a assigned#7");
  world.restart();
  CHECK(world.stage(job, "a").ended[static_cast<std::size_t>(Outcome::crash)] == 0);
}

TEST_CASE("resume: changed parameters rerun what depends on them, and nothing else") {
  World world;
  const JobId job = world.submit(with_params("calibrate", R"({"percentile":99.9})"));
  world.hello("box", 1);
  run_all(world, job);
  const JobSpec changed = with_params("calibrate", R"({"percentile":99.5})");
  CHECK(plan(world, job, "", changed) ==
        "baseline kept: done, key unchanged\n"
        "calibrate again: parameters changed: percentile 99.9 -> 99.5\n"
        "quantize again: depends on calibrate, which runs again\n"
        "profile kept: done, key unchanged\n");
  REQUIRE(world.resume(job, "", changed).ok());
  CHECK(world.states(job) == "baseline done, calibrate assigned#2, quantize waiting, profile done");
  run_all(world, job);
  world.restart();
  CHECK(world.states(job) == "baseline done, calibrate done#2, quantize done#2, profile done");
  CHECK(world.core().jobs.at(job).spec.stages[1].params_json.find("99.5") != std::string::npos);
}

TEST_CASE("resume: going back to earlier parameters takes the earlier job's results") {
  World world;
  const JobId first = world.submit(with_params("calibrate", R"({"percentile":99.9})"));
  world.hello("box", 1);
  run_all(world, first);
  const JobId second = world.submit(with_params("calibrate", R"({"percentile":99.5})"));
  run_all(world, second);
  REQUIRE(world.resume(second, "", with_params("calibrate", R"({"percentile":99.9})")).ok());
  CHECK(world.states(second) ==
        "baseline reused, calibrate reused, quantize reused, profile reused");
}

TEST_CASE("resume: --from forces a stage and all below it, equal results or not") {
  World world;
  const JobId job = world.submit(dag("a -> b -> c\na -> d"));
  world.hello("box", 1);
  run_all(world, job);
  CHECK(plan(world, job, "b") ==
        "a kept: done, key unchanged\n"
        "b again: forced by --from\n"
        "c again: depends on b, which runs again\n"
        "d kept: done, key unchanged\n");
  const JobId other = world.submit(dag("a -> b -> c\na -> d"));
  CHECK(world.core().jobs.at(other).state == JobState::done);   // all reused
  REQUIRE(world.resume(job, "b").ok());
  CHECK(world.states(job) == "a done, b assigned#2, c waiting, d done");
  world.restart();
  world.hello("box", 1);
  world.complete("box", {job, "b", {2}});
  CHECK(world.states(job) == "a done, b done#2, c assigned#2, d done");
}

TEST_CASE("resume: a checkpoint that is gone is made again, and all that came of it") {
  ReactorOptions options;
  std::string gone;
  options.checkpoint_exists = [&gone](const std::string& path) { return path != gone; };
  World world(options);
  const JobId job = world.submit(dag("a -> b"));
  world.hello("box", 1);
  run_all(world, job);
  gone = "/checkpoints/1/a#1";
  const auto steps = world.resume(job);
  REQUIRE(steps.ok());
  CHECK(told(*steps) ==
        "a again: its checkpoint is gone: /checkpoints/1/a#1\n"
        "b again: depends on a, which runs again\n");
  world.complete("box", {job, "a", {2}});
  CHECK(world.states(job) == "a done#2, b assigned#2");   // not its own stale result
}

TEST_CASE("resume: a cancelled job goes on, blocked stages with it") {
  World world;
  const JobId job = world.submit(dag("a -> b -> c"));
  REQUIRE(world.cancel(job, "a").ok());
  CHECK(world.states(job) == "a cancelled, b blocked, c blocked");
  CHECK(plan(world, job) ==
        "a again: was cancelled\n"
        "b again: depends on a, which runs again\n"
        "c again: depends on b, which runs again\n");
  REQUIRE(world.resume(job).ok());
  CHECK(world.states(job) == "a ready, b waiting, c waiting");
}

TEST_CASE("resume: while siblings run, what failed can go on; what runs is left alone") {
  World world;
  const JobId job = world.submit(dag("a\nb -> c"));
  world.hello("box", 2);
  world.started("box", {job, "b", {1}});
  world.finished("box", {job, "a", {1}}, Outcome::error, "bad");
  CHECK(plan(world, job) ==
        "a again: failed: error: bad\n"
        "b kept: runs now (attempt 1)\n"
        "c again: has not run yet (waiting)\n");
  CHECK(plan(world, job, "b").find("b runs now and would have to run again") != std::string::npos);
  REQUIRE(world.resume(job).ok());
  CHECK(world.states(job) == "a assigned#2, b running, c waiting");
}

TEST_CASE("resume: a ready stage goes back to waiting when what it needs runs again") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  world.hello("box", 1);
  world.complete("box", {job, "a", {1}});
  world.finished("box", {job, "b", {1}}, Outcome::crash);
  CHECK(world.states(job) == "a done, b ready");
  REQUIRE(world.resume(job, "a").ok());
  CHECK(world.states(job) == "a assigned#2, b waiting");
  world.restart();
  CHECK(world.states(job) == "a assigned#2, b waiting");
}

TEST_CASE("resume: refusals name what is wrong") {
  World world;
  const JobId job = world.submit(dag("alpha -> beta"));
  CHECK(plan(world, {9}).find("there is no job 9") != std::string::npos);
  CHECK(plan(world, job, "alhpa").find("did you mean alpha?") != std::string::npos);
  CHECK(plan(world, job, "", dag("alpha")).find("the new job file has no stage beta") !=
        std::string::npos);
  world.hello("box", 1);
  CHECK(plan(world, job, "", dag("alpha -> beta")).find("cannot change while alpha runs") !=
        std::string::npos);
}

TEST_CASE("resume: a stage added to the job file runs, the rest is kept") {
  World world;
  const JobId job = world.submit(dag("a -> c"));
  world.hello("box", 1);
  run_all(world, job);
  const JobSpec more = dag("a -> b\na -> c");
  CHECK(plan(world, job, "", more).find("b again: new in the job file") != std::string::npos);
  REQUIRE(world.resume(job, "", more).ok());
  CHECK(world.states(job) == "a done, b assigned, c done");
  run_all(world, job);
  world.restart();
  CHECK(world.states(job) == "a done, b done, c done");
}
