// The disk quota, pins, and checkpoints that are found to be corrupt.
#include "coordinator/collect.h"

#include "coordinator/resume.h"
#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;
using nightshift::testing::World;

namespace {

// Every checkpoint of the World's reports has nine bytes.
WorkerResources with_quota(std::int64_t bytes) {
  WorkerResources resources;
  resources.disk_quota_bytes = bytes;
  return resources;
}

void run_all(World& world, JobId job, const std::string& worker = "box") {
  for (int i = 0; i < 100 && !world.core().live.empty(); ++i) {
    const AttemptRef ref = world.core().live.begin()->second.ref;
    world.pass(1'000);
    world.complete(worker, ref);
  }
  REQUIRE(world.core().jobs.at(job).state == JobState::done);
}

// The checkpoints that a worker was told to remove, in order.
std::string dropped(const World& world) {
  std::string text;
  for (const Send& send : world.sent) {
    const auto* drop = std::get_if<DropCheckpoint>(&send.message);
    if (drop != nullptr) text += (text.empty() ? "" : " ") + to_string(drop->ref);
  }
  return text;
}

std::string plan(const World& world, JobId job) {
  const auto planned = plan_resume(world.core(), job, std::nullopt, "", nullptr);
  if (!planned.ok()) return planned.error().line();
  std::string text;
  for (const ResumeStep& step : planned->steps) {
    text += fmt::format("{} {}: {}\n", step.stage, step.rerun ? "again" : "kept", step.reason);
  }
  return text;
}

JobSpec night() {
  JobSpec spec = dag("baseline -> calibrate -> quantize -> evaluate");
  stage_of(spec, "baseline").kind = "baseline";
  return spec;
}

// A whole night on a box with this quota; nothing is collected before the first tick.
JobId quota_night(World& world, std::int64_t quota_bytes) {
  world.hello("box", 1, {}, "s1", with_quota(quota_bytes));
  const JobId job = world.submit(night());
  run_all(world, job);
  return job;
}

void say_dropped(World& world, const AttemptRef& ref, bool ok = true) {
  world.run([&](Turn& turn) {
    on_checkpoint_dropped(turn, world.from("box"), {ref, ok, ok ? "" : "it is being read"});
  });
}

}  // namespace

TEST_CASE("collect: nothing goes while the job is active, then what lies between first and last") {
  World world;
  world.hello("box", 1, {}, "s1", with_quota(20));
  const JobId job = world.submit(night());
  world.complete("box", {job, "baseline", {1}});
  world.complete("box", {job, "calibrate", {1}});
  world.complete("box", {job, "quantize", {1}});
  world.tick(1'000);
  CHECK(dropped(world) == "");
  CHECK(world.count_events("event=disk_quota_exceeded worker=box") == 1);
  world.complete("box", {job, "evaluate", {1}});
  world.tick(1'000);
  CHECK(dropped(world) == "1/calibrate#1 1/quantize#1");
  CHECK(world.stage(job, "calibrate").result->checkpoint->collected);
  CHECK(world.stage(job, "calibrate").result->metrics.size() == 1);
  CHECK_FALSE(world.stage(job, "baseline").result->checkpoint->collected);
  CHECK_FALSE(world.stage(job, "evaluate").result->checkpoint->collected);
}

TEST_CASE("collect: only as much as the quota asks, what a later run replaced goes first") {
  World world;
  const JobId job = quota_night(world, 40);
  REQUIRE(world.resume(job, "quantize").ok());
  run_all(world, job);  // six checkpoints of nine bytes are 54
  world.tick(1'000);
  CHECK(dropped(world) == "1/evaluate#1 1/quantize#1");   // told in the order of their names
}

TEST_CASE("collect: what is pinned stays, and unpinned it goes") {
  World world;
  world.hello("box", 1, {}, "s1", with_quota(20));
  const JobId job = world.submit(night());
  CHECK(world.run([&](Turn& turn) { return on_pin(turn, job, "", true); }).ok());
  run_all(world, job);
  world.tick(1'000);
  CHECK(dropped(world) == "");
  world.restart();
  CHECK(world.stage(job, "quantize").pinned);
  world.hello("box", 1, {}, "s1", with_quota(20));
  CHECK(world.run([&](Turn& turn) { return on_pin(turn, job, "calibrate", false); }).ok());
  world.tick(1'000);
  CHECK(dropped(world) == "1/calibrate#1");
  CHECK(world.run([&](Turn& turn) { return on_pin(turn, job, "nix", true); })
            .error()
            .line()
            .find("job 1 has no stage nix") != std::string::npos);
  CHECK_FALSE(world.run([&](Turn& turn) { return on_pin(turn, {9}, "", true); }).ok());
}

TEST_CASE("collect: a drop is asked until it is answered, over a restart, and counts once") {
  World world;
  const JobId job = quota_night(world, 30);
  world.tick(1'000);
  const AttemptRef ref{job, "calibrate", {1}};
  REQUIRE(world.count_sent<DropCheckpoint>(ref) == 1);
  world.live_on(31'000, {"box"});
  CHECK(world.count_sent<DropCheckpoint>(ref) == 2);
  say_dropped(world, ref, false);
  CHECK(world.count_events("event=checkpoint_not_dropped stage=calibrate attempt=1") == 1);
  world.sent.clear();
  world.restart();
  world.hello("box", 1, {}, "s2", with_quota(30));
  world.tick(1'000);
  CHECK(world.count_sent<DropCheckpoint>(ref) == 1);
  CHECK(world.fake.attempt(ref).checkpoint_state == "dropping");
  say_dropped(world, ref);
  say_dropped(world, ref);
  CHECK(world.fake.attempt(ref).checkpoint_state == "dropped");
  world.sent.clear();
  world.live_on(31'000, {"box"});
  CHECK(dropped(world) == "");
}

TEST_CASE("collect: another worker's answer counts for nothing") {
  World world;
  const JobId job = quota_night(world, 30);
  world.tick(1'000);
  world.hello("other");
  world.run([&](Turn& turn) {
    on_checkpoint_dropped(turn, world.from("other"), {{job, "calibrate", {1}}, true, ""});
  });
  CHECK(world.core().dropping.size() == 1);
}

TEST_CASE("collect: a job that shows another's checkpoint keeps it while it is active") {
  World world;
  quota_night(world, 30);
  JobSpec longer = night();
  StageSpec more;
  more.name = "more";
  more.kind = "run";
  more.command = {"do", "more"};
  more.needs = {"evaluate"};
  longer.stages.push_back(more);
  const JobId second = world.submit(longer);  // before the first tick: all is still there
  CHECK(world.states(second) ==
        "baseline reused, calibrate reused, quantize reused, evaluate reused, more assigned");
  world.tick(1'000);
  CHECK(dropped(world) == "");
  run_all(world, second);
  world.tick(1'000);
  CHECK(dropped(world) == "1/calibrate#1 1/quantize#1");
  CHECK(world.stage(second, "calibrate").result->checkpoint->collected);
}

TEST_CASE("collect: a third job does not take what is gone, also when its maker has moved on") {
  World world;
  world.hello("box", 1, {}, "s1", with_quota(20));
  const JobId first = world.submit(night());
  const JobId second = world.submit(night());
  run_all(world, first);
  REQUIRE(world.core().jobs.at(second).state == JobState::done);
  JobSpec changed = night();
  stage_of(changed, "calibrate").params_json = R"({"samples":7})";
  REQUIRE(world.resume(first, "", changed).ok());
  run_all(world, first);
  world.tick(1'000);
  const Stage& shown = world.stage(second, "calibrate");
  CHECK(shown.result->from == AttemptRef{first, "calibrate", {1}});
  CHECK(shown.result->checkpoint->collected);
  const JobId third = world.submit(night());
  CHECK(world.stage(third, "baseline").state == StageState::reused);
  CHECK(world.stage(third, "calibrate").state == StageState::assigned);
}

TEST_CASE("collect: resume makes a collected checkpoint again only for what runs below it") {
  World world;
  const JobId job = quota_night(world, 20);
  world.tick(1'000);
  CHECK(plan(world, job) ==
        "baseline kept: done, key unchanged\n"
        "calibrate kept: done, key unchanged (its checkpoint was collected, nothing needs it)\n"
        "quantize kept: done, key unchanged (its checkpoint was collected, nothing needs it)\n"
        "evaluate kept: done, key unchanged\n");
  const auto steps = plan_resume(world.core(), job, std::nullopt, "evaluate", nullptr);
  REQUIRE(steps.ok());
  CHECK(steps->steps[1].reason == "its checkpoint was collected under the disk quota");
  REQUIRE(world.resume(job, "evaluate").ok());
  CHECK(world.states(job) ==
        "baseline done, calibrate assigned#2, quantize waiting, evaluate waiting");
  run_all(world, job);
  CHECK(world.stage(job, "evaluate").attempts.size() == 2);
}

TEST_CASE("collect: a corrupt input ends its reader, and a resume makes it again") {
  World world;
  world.hello("box");
  const JobId job = world.submit(night());
  world.complete("box", {job, "baseline", {1}});
  world.complete("box", {job, "calibrate", {1}});
  AssignRefused refused;
  refused.ref = {job, "quantize", {1}};
  refused.reason = "model.safetensors has another content hash than its manifest says";
  refused.corrupt_input = "calibrate";
  world.run([&](Turn& turn) { on_assign_refused(turn, world.from("box"), refused); });
  CHECK(world.states(job) == "baseline done, calibrate done, quantize failed, evaluate blocked");
  CHECK(world.stage(job, "quantize").attempts.back().reason ==
        "the checkpoint of calibrate is corrupt: model.safetensors has another content hash than "
        "its manifest says");
  CHECK(world.count_events("event=checkpoint_corrupt stage=calibrate attempt=1 worker=box") == 1);
  world.restart();
  CHECK(plan(world, job) ==
        "baseline kept: done, key unchanged\n"
        "calibrate again: its checkpoint is corrupt\n"
        "quantize again: failed: error: the checkpoint of calibrate is corrupt: model.safetensors "
        "has another content hash than its manifest says\n"
        "evaluate again: depends on quantize, which runs again\n");
  const JobId other = world.submit(night());
  CHECK(world.stage(other, "calibrate").state != StageState::reused);
}

TEST_CASE("collect: a worker that calls an unknown input corrupt has only refused the order") {
  World world;
  world.hello("box");
  const JobId job = world.submit(dag("a -> b"));
  world.complete("box", {job, "a", {1}});
  AssignRefused refused;
  refused.ref = {job, "b", {1}};
  refused.reason = "what it says";
  refused.corrupt_input = "nix";
  world.run([&](Turn& turn) { on_assign_refused(turn, world.from("box"), refused); });
  CHECK(world.stage(job, "b").state == StageState::ready);
}
