// What people see of a job and of the workers.
#include "coordinator/views.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::World;

TEST_CASE("views: a job in the middle of its night") {
  World world;
  const JobId job = world.submit(dag("a -> b -> c\na -> d"));
  world.hello("box", 1);
  world.complete("box", {job, "a", {1}});
  world.started("box", {job, "b", {1}});
  AttemptPulse pulse;
  pulse.ref = {job, "b", {1}};
  pulse.elapsed_ms = 4'000;
  pulse.progress = ProgressReport{3, 8, "layers", 0, ""};
  world.heartbeat("box", {pulse});
  world.pass(500);
  const auto view = make_job_view(world.core(), {}, job, world.now);
  REQUIRE(view.has_value());
  REQUIRE(view->stages.size() == 4);
  CHECK(view->stages[0].checkpoint_path == "/checkpoints/1/a#1");
  CHECK(view->stages[0].metrics.size() == 1);
  CHECK(view->stages[0].attempts.at(0).outcome == Outcome::ok);
  CHECK(view->stages[1].pulse->progress->done == 3);
  CHECK(view->stages[1].pulse_age_ms == 500);
  CHECK(view->stages[1].attempts.at(0).elapsed_ms == 4'500);
  CHECK(view->stages[2].waiting_reason == "waits for b (running)");
  CHECK(view->stages[3].waiting_reason == "worker box: no free slot (of 1)");
  CHECK(view->events.front().text == "event=job_submitted name=job user=ann stages=4");
  CHECK(!make_job_view(world.core(), {}, {99}, world.now).has_value());
  CHECK(make_job_list(world.core()).size() == 1);
}

TEST_CASE("views: after a restart a running stage says whom it waits for") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.restart();
  const auto view = make_job_view(world.core(), {}, job, world.now);
  CHECK(view->stages[0].waiting_reason ==
        "its worker has not reported since the coordinator started");
  CHECK(make_worker_views(world.core(), 3'000, world.now).at(0).state == "silent");
}

TEST_CASE("views: workers are online, silent, lost, and show what they still hold") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  const auto first = [&] { return make_worker_views(world.core(), 3'000, world.now).at(0); };
  CHECK(first().state == "online");
  CHECK(first().running == std::vector<std::string>{"1/a#1"});
  world.pass(3'001);
  CHECK(first().state == "silent");
  REQUIRE(world.cancel(job).ok());
  CHECK(first().running == std::vector<std::string>{"1/a#1 (stopping)"});
  world.tick(10'000);
  CHECK(first().state == "lost");
  CHECK(first().running.empty());
}
