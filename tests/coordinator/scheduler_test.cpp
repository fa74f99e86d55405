#include "coordinator/scheduler.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;
using nightshift::testing::World;

namespace {

// What would be assigned now, as "job/stage@worker".
std::string offered(const World& world, SchedulerOptions options = {}) {
  std::string text;
  for (const Assignment& next : schedule(world.core(), options, world.now)) {
    text += (text.empty() ? "" : " ") + to_string(ref_of(world.core(), next.stage)) + "@" +
            next.worker.value;
  }
  return text;
}

// The attempts that were ordered, in order, as "job/stage".
std::string ordered(const World& world) {
  std::string text;
  for (const Send& send : world.sent) {
    if (const auto* assign = std::get_if<AssignAttempt>(&send.message)) {
      text += (text.empty() ? "" : " ") + to_string(assign->ref.stage_ref());
    }
  }
  return text;
}

std::string reasons(const World& world, JobId job, const std::string& stage,
                    const SchedulerOptions& options = {}) {
  const auto at = find_stage(world.core(), {job, stage});
  return fmt::format("{}", fmt::join(explain_stage(world.core(), options, *at, world.now).reasons,
                                     "; "));
}

WorkerResources with_gpu(int gpu) {
  WorkerResources resources;
  resources.gpu = gpu;
  return resources;
}

}  // namespace

TEST_CASE("scheduler: priority first, then submit order, then plan order") {
  World world;
  JobSpec low = dag("a\nb");
  JobSpec high = dag("c");
  high.priority = 5;
  world.submit(low);
  world.submit(dag("x"));
  world.submit(high);
  world.hello("box", 4);
  CHECK(ordered(world) == "3/c 1/a 1/b 2/x");
}

TEST_CASE("scheduler: users take turns, whoever submitted first") {
  World world;
  world.submit(dag("a\nb\nc\nd"), "ann");
  world.submit(dag("x\ny"), "ben");
  world.hello("box", 4);
  CHECK(ordered(world) == "1/a 2/x 1/b 2/y");
}

TEST_CASE("scheduler: one slot goes round between users") {
  World world;
  const JobId ann = world.submit(dag("a\nb\nc"), "ann");
  const JobId ben = world.submit(dag("x\ny"), "ben");
  world.hello("box", 1);
  world.complete("box", {ann, "a", {1}});
  world.complete("box", {ben, "x", {1}});
  world.complete("box", {ann, "b", {1}});
  CHECK(ordered(world) == "1/a 2/x 1/b 2/y");
}

TEST_CASE("scheduler: resources are counted, and a wish without effect does not matter") {
  World world;
  JobSpec spec = dag("a\nb\nc");
  for (StageSpec& stage : spec.stages) stage.resources.gpu = 1;
  const JobId job = world.submit(spec);
  world.hello("gpu", 4, {}, "s1", with_gpu(2));
  CHECK(ordered(world) == "1/a 1/b");
  CHECK(reasons(world, job, "c") == "worker gpu: needs gpu 1, has 0 free of 2");
  world.complete("gpu", {job, "a", {1}});
  CHECK(ordered(world) == "1/a 1/b 1/c");
}

TEST_CASE("scheduler: a stage without GPU leaves the GPU worker alone when it can") {
  World world;
  world.hello("a-gpu", 1, {}, "s1", with_gpu(1));
  world.hello("b-cpu", 1);
  world.run([](Turn&) {});
  world.submit(dag("a"));
  CHECK(std::get_if<AssignAttempt>(&world.sent.back().message) != nullptr);
  CHECK(world.sent.back().worker.value == "b-cpu");
}

TEST_CASE("scheduler: a stage goes where its inputs are") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  world.hello("one", 1);
  world.started("one", {job, "a", {1}});
  world.finished("one", {job, "a", {1}}, Outcome::ok);
  world.hello("another", 1);
  world.committed("one", {job, "a", {1}});
  CHECK(world.last_sent<AssignAttempt>()->ref.stage == "b");
  CHECK(world.core().live.begin()->second.worker.value == "one");
}

TEST_CASE("scheduler: every refusal has its reason") {
  World world;
  JobSpec spec = dag("big\nlabelled\nwide\nsmall\nlast");
  stage_of(spec, "big").resources.memory_bytes = std::int64_t{24} << 30;
  stage_of(spec, "labelled").resources.labels = {"a100"};
  stage_of(spec, "wide").resources.cores = 64;
  const JobId job = world.submit(spec);
  CHECK(reasons(world, job, "big") == "no worker is online");
  WorkerResources resources;
  resources.cores = 8;
  resources.memory_bytes = std::int64_t{16} << 30;
  world.hello("box", 1, {}, "s1", resources);
  CHECK(reasons(world, job, "big") ==
        "worker box: needs memory 24.0 GiB, has 16.0 GiB free of 16.0 GiB");
  CHECK(reasons(world, job, "labelled") == "worker box: label a100 missing");
  CHECK(reasons(world, job, "wide") == "worker box: needs cores 64, has 8 free of 8");
  CHECK(reasons(world, job, "last") == "worker box: no free slot (of 1)");
  CHECK(reasons(world, job, "small").empty());   // it runs
}

TEST_CASE("scheduler: an attempt does not go where an earlier one of its stage still runs") {
  World world;
  const JobId job = world.submit(dag("a\nb"));
  world.hello("one", 2);
  world.started("one", {job, "a", {1}});
  REQUIRE(world.cancel(job, "a").ok());
  world.complete("one", {job, "b", {1}});
  REQUIRE(world.resume(job).ok());
  CHECK(world.states(job) == "a ready, b done");
  CHECK(reasons(world, job, "a") == "worker one: an earlier attempt has not ended there");
  world.finished("one", {job, "a", {1}}, Outcome::cancelled);
  CHECK(world.states(job) == "a assigned#2, b done");
}

TEST_CASE("scheduler: back-off and needs are explained") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  CHECK(reasons(world, job, "b") == "waits for a (running)");
  world.finished("box", {job, "a", {1}}, Outcome::crash, "signal 11");
  CHECK(reasons(world, job, "a") == "back-off until in 30 s (crash: signal 11)");
  CHECK(offered(world).empty());
  world.tick(30'000);
  CHECK(world.states(job) == "a ready, b waiting");   // its worker was silent for 30 s
  world.hello("box", 1);
  CHECK(world.states(job) == "a assigned#2, b waiting");
}

TEST_CASE("scheduler: a stage that needs the whole worker is not starved by small ones") {
  World world;
  WorkerResources resources;
  resources.cores = 2;
  world.hello("box", 2, {}, "s1", resources);
  const auto small = [](const std::string& text) {
    JobSpec spec = dag(text);
    for (StageSpec& stage : spec.stages) stage.resources.cores = 1;
    return spec;
  };
  const JobId first = world.submit(small("s1\ns2"));
  JobSpec large = dag("big");
  large.stages[0].resources.cores = 2;
  const JobId big = world.submit(large);
  const JobId later = world.submit(small("t1\nt2\nt3"));
  world.started("box", {first, "s2", {1}});
  world.complete("box", {first, "s1", {1}});
  CHECK(world.states(later) == "t1 assigned, t2 ready, t3 ready");   // before the time is up
  world.started("box", {later, "t1", {1}});
  world.live_on(31'000, {"box"});
  world.complete("box", {first, "s2", {1}});
  CHECK(world.states(later) == "t1 running, t2 ready, t3 ready");    // kept free for the big one
  world.complete("box", {later, "t1", {1}});
  CHECK(world.states(big) == "big assigned");
}

TEST_CASE("scheduler: a higher priority may pass a reservation, an equal one may not") {
  World world;
  JobSpec first = dag("s1\ns2");
  for (StageSpec& stage : first.stages) stage.resources.cores = 1;
  const JobId running = world.submit(first);
  WorkerResources resources;
  resources.cores = 2;
  world.hello("box", 2, {}, "s1", resources);
  JobSpec large = dag("big");
  large.stages[0].resources.cores = 2;
  world.submit(large);
  world.started("box", {running, "s1", {1}});
  world.started("box", {running, "s2", {1}});
  world.live_on(31'000, {"box"});
  JobSpec urgent = dag("u");
  urgent.priority = 9;
  const JobId equal = world.submit(dag("e"));
  const JobId higher = world.submit(urgent);
  world.complete("box", {running, "s1", {1}});
  CHECK(world.states(equal) == "e ready");
  CHECK(world.states(higher) == "u assigned");
}

TEST_CASE("scheduler: outside its night window a job waits, and what cannot end does not start") {
  World world;
  SchedulerOptions options;
  NightWindow window;
  options.night = [&window](const NightSpec& night, std::int64_t) {
    return night.start.empty() ? NightWindow{} : window;
  };
  JobSpec spec = dag("short\nlong");
  spec.night.start = "22:00";
  stage_of(spec, "long").expected_ms = 40 * 60'000;
  const JobId job = world.submit(spec);
  world.submit(dag("day"));
  Core core = world.core();
  Worker worker;
  worker.name = {"box"};
  worker.state = WorkerState::online;
  worker.resources.slots = 8;
  core.workers[worker.name] = worker;
  window = {false, 5 * 60'000, -1};
  CHECK(schedule(core, options, world.now).size() == 1);
  const Explanation closed = explain_stage(core, options, {job, 0}, world.now);
  CHECK(closed.reasons.front() == "outside the night window, which opens in 5 min");
  window = {true, 0, 25 * 60'000};
  CHECK(schedule(core, options, world.now).size() == 2);
  const Explanation late = explain_stage(core, options, {job, 1}, world.now);
  CHECK(late.reasons.front() == "would not end before the deadline: asks 40 min, 25 min left");
}

TEST_CASE("scheduler: shares of a GPU go to the fullest device that has them") {
  World world;
  JobSpec spec = dag("a\nb\nc\nd");
  stage_of(spec, "a").resources.gpu_share_percent = 30;
  stage_of(spec, "b").resources.gpu_share_percent = 60;
  stage_of(spec, "c").resources.gpu = 1;
  stage_of(spec, "d").resources.gpu_share_percent = 20;
  const JobId job = world.submit(spec);
  world.hello("box", 8, {}, "s1", with_gpu(2));
  CHECK(ordered(world) == "1/a 1/b 1/c");
  const Worker& box = world.core().workers.at({"box"});
  CHECK(box.used_gpu_percent == std::vector<int>{90, 100});
  CHECK(box.held.at({job, "b", {1}}).gpu_devices == std::vector<int>{0});
  CHECK(box.held.at({job, "c", {1}}).gpu_devices == std::vector<int>{1});
  CHECK(reasons(world, job, "d") == "worker box: needs 20 % of a gpu, has no such share free of 2");
  world.complete("box", {job, "a", {1}});
  CHECK(box.held.at({job, "d", {1}}).gpu_devices == std::vector<int>{0});
  const AssignAttempt* order = world.last_sent<AssignAttempt>();
  REQUIRE(order != nullptr);
  CHECK(order->gpu_devices == std::vector<int>{0});
}

TEST_CASE("scheduler: devices stay given over a restart of the coordinator") {
  World world;
  JobSpec spec = dag("a\nb\nc");
  for (StageSpec& stage : spec.stages) stage.resources.gpu = 1;
  const JobId job = world.submit(spec);
  world.hello("box", 8, {}, "s1", with_gpu(2));
  world.started("box", {job, "a", {1}});
  world.started("box", {job, "b", {1}});
  world.restart();
  world.hello("box", 8, {{{job, "a", {1}}}, {{job, "b", {1}}}}, "s1", with_gpu(2));
  const Worker& box = world.core().workers.at({"box"});
  CHECK(box.held.at({job, "b", {1}}).gpu_devices == std::vector<int>{1});
  CHECK(world.stage(job, "c").state == StageState::ready);
  world.complete("box", {job, "b", {1}});
  CHECK(box.held.at({job, "c", {1}}).gpu_devices == std::vector<int>{1});
}

TEST_CASE("scheduler: an exclusive stage has the worker for itself") {
  World world;
  JobSpec spec = dag("a\nalone\nz");
  stage_of(spec, "alone").resources.exclusive = true;
  stage_of(spec, "alone").resources.gpu_share_percent = 0;
  const JobId job = world.submit(spec);
  world.hello("box", 4);
  CHECK(ordered(world) == "1/a 1/z");
  CHECK(reasons(world, job, "alone") ==
        "worker box: wants the worker for itself, 1/a#1 runs there");
  world.complete("box", {job, "a", {1}});
  world.complete("box", {job, "z", {1}});
  CHECK(world.stage(job, "alone").state == StageState::assigned);
  const JobId next = world.submit(dag("after"));
  CHECK(reasons(world, next, "after") == "worker box: has 1/alone#1 for itself");
  world.complete("box", {job, "alone", {1}});
  CHECK(world.stage(next, "after").state == StageState::assigned);
}
