// Late, doubled and foreign reports; cancel races; the commit protocol interrupted at every step.
#include "coordinator/reactor.h"
#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::FailingStore;
using nightshift::testing::World;

TEST_CASE("reactor: a report of an older attempt is counted, answered and refused") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef old{job, "a", {1}};
  world.hello("one", 1);
  world.started("one", old);
  world.pass(11'000);
  world.tick();   // the lease of `one` has run out
  world.hello("two", 1);
  for (int i = 0; i < 31; ++i) {
    world.pass(1000);
    world.heartbeat("two");
    world.tick();
  }
  const AttemptRef now{job, "a", {2}};
  world.started("two", now);
  world.sent.clear();
  world.finished("one", old, Outcome::ok);
  CHECK(world.states(job) == "a running#2");
  CHECK(world.core().counters.reports_refused == 1);
  CHECK(world.count_events("event=report_refused stage=a attempt=1") == 1);
  REQUIRE(world.last_sent<AttemptAcknowledged>() != nullptr);
  CHECK(!world.last_sent<AttemptAcknowledged>()->accepted);
  world.finished("one", old, Outcome::ok);
  CHECK(world.count_events("event=report_refused") == 1);   // told once, counted each time
  world.complete("two", now);
  CHECK(world.states(job) == "a done#2");
}

TEST_CASE("reactor: a worker that comes back from a pause stops what is not its own any more") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef old{job, "a", {1}};
  world.hello("one", 1);
  world.started("one", old);
  world.tick(11'000);
  CHECK(world.core().workers.at({"one"}).state == WorkerState::lost);
  AttemptPulse pulse;
  pulse.ref = old;
  world.heartbeat("one", {pulse});
  CHECK(world.count_sent<StopAttempt>(old) == 1);
  // The process still has its slot: nothing else goes there until it is gone.
  world.live_on(40'000, {"one"});
  for (int i = 0; i < 5; ++i) world.heartbeat("one", {pulse});
  world.finished("one", old, Outcome::cancelled);
  CHECK(world.states(job) == "a assigned#2");
}

TEST_CASE("reactor: nobody reports for somebody else") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("one", 1);
  world.hello("two", 1);
  world.finished("two", {job, "a", {1}}, Outcome::ok);
  world.committed("two", {job, "a", {1}});
  CHECK(world.states(job) == "a assigned");
  world.finished("one", {{77}, "nothing", {1}}, Outcome::ok);
  world.started("one", {job, "nothing", {1}});
  CHECK(world.core().counters.reports_refused == 4);
}

TEST_CASE("reactor: doubled reports change nothing more") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.started("box", ref);
  world.finished("box", ref, Outcome::ok);
  world.finished("box", ref, Outcome::ok);
  CHECK(world.count_sent<CommitCheckpoint>(ref) == 2);
  world.committed("box", ref);
  world.committed("box", ref);
  world.finished("box", ref, Outcome::ok);
  CHECK(world.states(job) == "a done, b assigned");
  CHECK(world.core().counters.stages_done == 1);
}

TEST_CASE("reactor: cancel at every point of an attempt's life wins once it is acknowledged") {
  const std::vector<std::string> steps = {"assigned", "started", "finished", "committed"};
  for (std::size_t when = 0; when < steps.size(); ++when) {
    CAPTURE(steps[when]);
    World world;
    const JobId job = world.submit(dag("a -> b"));
    const AttemptRef ref{job, "a", {1}};
    world.hello("box", 1);
    if (when >= 1) world.started("box", ref);
    if (when >= 2) world.finished("box", ref, Outcome::ok);
    if (when >= 3) world.committed("box", ref);
    const Status cancelled = world.cancel(job, "a");
    CHECK(cancelled.ok() == (when < 3));
    // The success arrives late.
    world.started("box", ref);
    world.finished("box", ref, Outcome::ok);
    world.committed("box", ref);
    if (cancelled.ok()) {
      CHECK(world.states(job) == "a cancelled, b blocked");
      CHECK(world.count_sent<StopAttempt>(ref) >= 1);
      CHECK(!world.last_sent<AttemptAcknowledged>()->accepted);
      CHECK(!world.fake.attempt(ref).checkpoint.has_value());
      CHECK(world.core().jobs.at(job).state == JobState::cancelled);
    } else {
      CHECK(world.states(job) == "a done, b assigned");
    }
  }
}

TEST_CASE("reactor: a cancelled attempt keeps its slot until its process is gone") {
  World world;
  const JobId first = world.submit(dag("a"));
  const JobId second = world.submit(dag("x"));
  world.hello("box", 1);
  world.started("box", {first, "a", {1}});
  REQUIRE(world.cancel(first).ok());
  CHECK(world.states(second) == "x ready");
  AttemptPulse pulse;
  pulse.ref = {first, "a", {1}};
  world.sent.clear();
  for (int i = 0; i < 15; ++i) {
    world.pass(1000);
    world.heartbeat("box", {pulse});
    world.tick();
  }
  CHECK(world.count_sent<StopAttempt>({first, "a", {1}}) >= 1);   // asked again
  CHECK(world.states(second) == "x ready");
  world.finished("box", {first, "a", {1}}, Outcome::cancelled);
  CHECK(world.states(second) == "x assigned");
  CHECK(world.core().counters.reports_refused == 0);   // all as expected
}

TEST_CASE("reactor: a stopped attempt that nobody mentions any more frees its slot") {
  World world;
  const JobId first = world.submit(dag("a"));
  const JobId second = world.submit(dag("x"));
  world.hello("box", 1);
  world.started("box", {first, "a", {1}});
  REQUIRE(world.cancel(first).ok());
  world.live_on(29'000, {"box"});
  CHECK(world.states(second) == "x ready");
  world.live_on(2'000, {"box"});
  CHECK(world.states(second) == "x assigned");
}

TEST_CASE("reactor: cancel of a job, twice, and of what does not exist") {
  World world;
  const JobId job = world.submit(dag("alpha -> beta"));
  REQUIRE(world.cancel(job).ok());
  CHECK(world.states(job) == "alpha cancelled, beta cancelled");
  CHECK(world.cancel(job).error().code == ErrorCode::conflict);
  CHECK(world.cancel({99}).error().code == ErrorCode::not_found);
  CHECK(world.cancel(job, "alpa").error().hint == "did you mean alpha?");
}

TEST_CASE("reactor: an order without an answer is sent again, then given up") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("deaf", 1);
  world.live_on(20'000, {"deaf"});
  CHECK(world.count_sent<AssignAttempt>(ref) >= 4);
  CHECK(world.states(job) == "a assigned");
  world.live_on(45'000, {"deaf"});
  CHECK(world.states(job) == "a ready");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::lost);
  world.hello("good", 1);
  world.live_on(31'000, {"deaf", "good"});
  CHECK(world.last_sent<AssignAttempt>()->ref.attempt.value == 2);
  CHECK(world.core().live.begin()->second.worker.value == "good");
}

TEST_CASE("reactor: a lost report of the start is made up by a pulse or by the end") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  world.hello("box", 1);
  AttemptPulse pulse;
  pulse.ref = {job, "a", {1}};
  world.heartbeat("box", {pulse});
  CHECK(world.states(job) == "a running, b waiting");
  world.finished("box", {job, "a", {1}}, Outcome::ok);
  world.committed("box", {job, "a", {1}});
  world.finished("box", {job, "b", {1}}, Outcome::ok);   // never said that it started
  world.committed("box", {job, "b", {1}});
  CHECK(world.states(job) == "a done, b done");
}

TEST_CASE("reactor: a refused order goes to another worker") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("one", 1);
  world.hello("two", 1);
  world.run([&](Turn& turn) {
    on_assign_refused(turn, world.from("one"), {{job, "a", {1}}, "inputs are missing", false, ""});
  });
  CHECK(world.states(job) == "a ready");
  world.live_on(30'000, {"one", "two"});
  CHECK(world.core().live.begin()->second.worker.value == "two");
}

TEST_CASE("reactor: the commit protocol goes on after a crash at each of its steps") {
  for (int step = 0; step < 5; ++step) {
    for (FailingStore::Fault fault :
         {FailingStore::Fault::before_writing, FailingStore::Fault::after_writing}) {
      CAPTURE(step);
      CAPTURE(static_cast<int>(fault));
      World world;
      const JobId job = world.submit(dag("a"));
      const AttemptRef ref{job, "a", {1}};
      world.hello("box", 1);
      const auto strike = [&](int now) {
        if (step == now) world.store.next = fault;
      };
      strike(0);
      world.started("box", ref);
      strike(1);
      world.finished("box", ref, Outcome::ok);
      strike(2);
      world.committed("box", ref);
      if (step == 3) world.restart();
      // The worker hears of the new epoch, says hello and reports what was not acknowledged.
      const bool acknowledged = world.count_sent<AttemptAcknowledged>(ref) > 0;
      std::vector<HeldAttempt> held;
      if (!acknowledged) held.push_back({ref, true});
      world.hello("box", 1, held);
      if (!acknowledged) {
        AttemptFinished again = world.report(ref, Outcome::ok);
        again.committed = step >= 2;
        world.finished("box", again);
        world.committed("box", ref);
      }
      CHECK(world.states(job) == "a done");
      CHECK(world.fake.attempts().size() == 1);
      CHECK(world.core().jobs.at(job).state == JobState::done);
    }
  }
}
