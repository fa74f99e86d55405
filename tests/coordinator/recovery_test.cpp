// Starting from what the store has, whatever state that is in.
#include "coordinator/recovery.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::World;

TEST_CASE("recovery: the core is the same after a restart") {
  World world;
  const JobId job = world.submit(dag("a -> b -> c\na -> d"));
  world.hello("box", 2);
  world.complete("box", {job, "a", {1}});
  world.started("box", {job, "b", {1}});
  world.finished("box", {job, "d", {1}}, Outcome::crash, "signal 11");
  const std::string before = world.states(job);
  const std::int64_t back_off = world.stage(job, "d").not_before_mono_ms;
  world.restart();
  CHECK(world.states(job) == before);
  CHECK(world.stage(job, "d").not_before_mono_ms == back_off);
  CHECK(world.stage(job, "d").ended[static_cast<std::size_t>(Outcome::crash)] == 1);
  CHECK(world.stage(job, "a").result->metrics.size() == 1);
  CHECK(world.core().live.begin()->second.suspected);
  CHECK(world.core().jobs.at(job).events.size() > 0);
}

TEST_CASE("recovery: a clock that was set does not stall a back-off") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.finished("box", {job, "a", {1}}, Outcome::crash);
  world.now.wall_ms -= 365LL * 24 * 3600 * 1000;
  world.restart();
  CHECK(world.stage(job, "a").not_before_mono_ms - world.now.mono_ms <= 10 * 60'000);
}

TEST_CASE("recovery: a row in an impossible state costs its job, not the service") {
  using Damage = std::function<void(testing::FakeStore&, JobId)>;
  const std::map<std::string, Damage> damages = {
      {"unknown state '" "NEW'",
       [](testing::FakeStore& store, JobId job) { store.stage({job, "a"}).state = "NEW"; }},
      {"done, and attempt 1 is open",
       [](testing::FakeStore& store, JobId job) { store.stage({job, "a"}).state = "done"; }},
      {"attempt 7 but the last one stored is 1",
       [](testing::FakeStore& store, JobId job) { store.stage({job, "a"}).attempt = {7}; }},
      {"without its worker",
       [](testing::FakeStore& store, JobId job) { store.stage({job, "a"}).worker = ""; }},
      {"does not follow from what it needs",
       [](testing::FakeStore& store, JobId job) { store.stage({job, "b"}).state = "ready"; }},
      {"is not stored",
       [](testing::FakeStore& store, JobId job) {
         store.stage({job, "b"}).result = AttemptRef{{9}, "x", {1}};
       }},
      {"does not follow from its stages",
       [](testing::FakeStore& store, JobId job) { store.job(job).state = "done"; }},
      {"unknown state 'sleeping'",
       [](testing::FakeStore& store, JobId job) { store.job(job).state = "sleeping"; }},
      {"job 1", [](testing::FakeStore& store, JobId job) { store.job(job).spec_json = "{\"na"; }},
  };
  for (const auto& [reason, damage] : damages) {
    CAPTURE(reason);
    World world;
    const JobId bad = world.submit(dag("a -> b"), "ann", "again");
    const JobId good = world.submit(dag("x"));
    world.hello("box", 1);
    REQUIRE(world.states(bad) == "a assigned, b waiting");
    damage(world.fake, bad);
    world.restart();
    REQUIRE(world.core().quarantined.contains(bad));
    REQUIRE(world.engine->warnings().size() == 1);
    CHECK(world.engine->warnings()[0].find(reason) != std::string::npos);
    CHECK(world.submit(dag("a"), "ann", "again") == bad);
    CHECK(world.submit(dag("y")).value == 3);   // its number is not given again
    world.hello("box", 2, {{{bad, "a", {1}}, false}});
    CHECK(world.count_sent<StopAttempt>({bad, "a", {1}}) == 1);
    world.complete("box", {good, "x", {1}});
    CHECK(world.states(good) == "x done");
    const auto resumed = world.resume(bad);
    CHECK(resumed.error().code == ErrorCode::corrupt);
  }
}

TEST_CASE("recovery: a store that cannot be read leaves the engine unhealthy until it can") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.store.broken = true;
  world.hello("box", 1);
  CHECK(!world.engine->healthy());
  CHECK(world.last_error.has_value());
  CHECK(!world.engine->open(world.now).ok());
  world.store.broken = false;
  REQUIRE(world.engine->open(world.now).ok());
  world.hello("box", 1);
  CHECK(world.states(job) == "a assigned");
}
