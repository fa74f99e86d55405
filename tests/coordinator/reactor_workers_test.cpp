// Workers that go and come, restarts of the coordinator, leases, amnesty and the watchdog.
#include "coordinator/reactor.h"
#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;
using nightshift::testing::World;

namespace {

AttemptPulse pulse_of(const AttemptRef& ref, std::int64_t progress_age_ms, std::int64_t log_age_ms,
                      std::int64_t quiet_left_ms = 0) {
  AttemptPulse pulse;
  pulse.ref = ref;
  pulse.progress_age_ms = progress_age_ms;
  pulse.log_age_ms = log_age_ms;
  pulse.quiet_left_ms = quiet_left_ms;
  return pulse;
}

}  // namespace

TEST_CASE("reactor: silence beyond the lease loses the worker and its attempts") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.tick(10'000);
  CHECK(world.states(job) == "a running");
  world.tick(1);
  CHECK(world.states(job) == "a ready");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::lost);
  CHECK(world.core().counters.attempts_lost == 1);
  world.tick(1);
  CHECK(world.core().counters.attempts_lost == 1);   // one callback, however often it is looked at
}

TEST_CASE("reactor: any word counts as a heartbeat") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.tick(9'000);
  world.started("box", {job, "a", {1}});
  world.tick(9'000);
  CHECK(world.states(job) == "a running");
}

TEST_CASE("reactor: every heartbeat is answered with the epoch, the lease runs on both sides") {
  World world;
  world.hello("box", 1);
  world.sent.clear();
  world.heartbeat("box");
  REQUIRE(world.last_sent<WorkerWelcome>() != nullptr);
  CHECK(world.last_sent<WorkerWelcome>()->server_epoch == world.core().epoch.value);
  CHECK(world.fake.transactions == 1);   // the hello; heartbeats stay out of the durable path
}

TEST_CASE("reactor: a new session brings its attempts back or loses them") {
  World world;
  const JobId job = world.submit(dag("a\nb"));
  world.hello("box", 2);
  world.started("box", {job, "a", {1}});
  world.started("box", {job, "b", {1}});
  world.hello("box", 2, {{{job, "a", {1}}, false}}, "s2");
  CHECK(world.states(job) == "a running, b ready");
  CHECK(world.stage(job, "b").attempts[0].outcome == Outcome::lost);
  CHECK(world.count_events("event=attempt_attached stage=a") == 1);
  world.complete("box", {job, "a", {1}});
  CHECK(world.stage(job, "a").state == StageState::done);
}

TEST_CASE("reactor: the old session is shut down and its words are not heard") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1, {}, "s1");
  world.hello("box", 1, {}, "s2");
  const auto shutdown = std::find_if(world.sent.begin(), world.sent.end(), [](const Send& send) {
    return std::holds_alternative<WorkerShutdown>(send.message);
  });
  REQUIRE(shutdown != world.sent.end());
  CHECK(shutdown->session == "boxs1");
  const AttemptNumber current = world.stage(job, "a").attempt;
  world.sessions["box"] = "boxs1";
  world.finished("box", {job, "a", current}, Outcome::ok);
  world.committed("box", {job, "a", current});
  CHECK(world.stage(job, "a").state != StageState::done);
}

TEST_CASE("reactor: the same session, connected again, gets its order again") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.hello("box", 1);
  CHECK(world.count_sent<AssignAttempt>(ref) == 2);
  CHECK(world.states(job) == "a assigned");
}

TEST_CASE("reactor: a held attempt that is not current is stopped, or acknowledged when over") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 2, {{{job, "x", {7}}, false}, {{{55}, "b", {1}}, true}});
  CHECK(world.count_sent<StopAttempt>({job, "x", {7}}) == 1);
  CHECK(world.count_sent<AttemptAcknowledged>({{55}, "b", {1}}) == 1);
  CHECK(world.states(job) == "a assigned");   // the other slot
  CHECK(world.core().workers.at({"box"}).used_slots == 2);
}

TEST_CASE("reactor: after a restart running attempts go on when their worker reports them") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.restart();
  CHECK(world.core().epoch.value == 2);
  CHECK(world.states(job) == "a running, b waiting");
  world.tick(9'000);
  CHECK(world.states(job) == "a running, b waiting");   // amnesty
  world.hello("box", 1, {{{job, "a", {1}}, false}});
  world.tick(9'000);
  world.complete("box", {job, "a", {1}});
  CHECK(world.states(job) == "a done, b assigned");
  CHECK(world.stage(job, "a").attempts.size() == 1);
}

TEST_CASE("reactor: after the amnesty what nobody reported is lost") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.restart();
  world.tick(10'001);
  CHECK(world.states(job) == "a ready");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::lost);
}

TEST_CASE("reactor: an order whose message died with the coordinator is sent again") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.restart();
  world.sent.clear();
  world.hello("box", 1);   // the same process: it cannot have started it and forgotten
  CHECK(world.count_sent<AssignAttempt>({job, "a", {1}}) == 1);
  world.complete("box", {job, "a", {1}});
  CHECK(world.states(job) == "a done");
}

TEST_CASE("reactor: a heartbeat of an earlier epoch is a sign of life and no more") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.restart();
  for (int i = 0; i < 20; ++i) {
    world.pass(1000);
    Heartbeat old{{"box"}, "boxs1", 1, -1, -1, {pulse_of({job, "a", {1}}, 0, 0)}};
    world.run([&](Turn& turn) { on_heartbeat(turn, old); });
    world.tick();
  }
  CHECK(world.states(job) == "a running");
  CHECK(world.last_sent<WorkerWelcome>()->server_epoch == 2);
  Heartbeat stranger{{"who"}, "x", 2, -1, -1, {pulse_of({job, "a", {1}}, 0, 0)}};
  world.run([&](Turn& turn) { on_heartbeat(turn, stranger); });
  CHECK(world.core().workers.size() == 1);
}

TEST_CASE("watchdog: log and progress both silent for too long ends the attempt as hung") {
  World world;
  JobSpec spec = dag("a");
  spec.watchdog.log_silence_ms = 60'000;
  const JobId job = world.submit(spec);
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.heartbeat("box", {pulse_of(ref, 600'000, 1'000)});
  world.tick();
  world.heartbeat("box", {pulse_of(ref, 1'000, 600'000)});
  world.tick();
  world.heartbeat("box", {pulse_of(ref, 600'000, 600'000, 5'000)});   // a declared quiet phase
  world.tick();
  CHECK(world.count_sent<StopAttempt>(ref) == 0);
  world.heartbeat("box", {pulse_of(ref, 61'000, 60'001)});
  world.tick();
  REQUIRE(world.count_sent<StopAttempt>(ref) == 1);
  CHECK(world.last_sent<StopAttempt>()->outcome == Outcome::hung);
  CHECK(world.last_sent<StopAttempt>()->reason ==
        "no progress for 61 s and no log for 60 s, limit 60 s");
  world.finished("box", ref, Outcome::crash, "signal 15");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::hung);
  CHECK(world.stage(job, "a").retry_reason.find("no progress for 61 s") != std::string::npos);
}

TEST_CASE("watchdog: without any pulse the age counts from the start") {
  World world;
  JobSpec spec = dag("a");
  spec.watchdog.log_silence_ms = 60'000;
  const JobId job = world.submit(spec);
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  for (int i = 0; i < 61; ++i) {
    world.pass(1000);
    world.heartbeat("box");
    world.tick();
  }
  CHECK(world.count_sent<StopAttempt>(ref) == 1);
  for (int i = 0; i < 11; ++i) {
    world.pass(1000);
    world.heartbeat("box");
    world.tick();
  }
  CHECK(world.count_sent<StopAttempt>(ref) == 2);   // said again until it is answered
}

TEST_CASE("watchdog: modes log and warn say it once and kill nothing") {
  World world;
  JobSpec spec = dag("a");
  spec.watchdog.log_silence_ms = 60'000;
  spec.watchdog.mode = WatchdogMode::warn;
  const JobId job = world.submit(spec);
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  for (int i = 0; i < 5; ++i) {
    world.heartbeat("box", {pulse_of(ref, 90'000, 90'000)});
    world.tick(1000);
  }
  CHECK(world.count_sent<StopAttempt>(ref) == 0);
  CHECK(world.count_events("event=watchdog_warn") == 1);
}

TEST_CASE("watchdog: a wall limit ends the attempt as timeout, a late success still counts") {
  World world;
  JobSpec spec = dag("a");
  spec.stages[0].wall_limit_ms = 30'000;
  const JobId job = world.submit(spec);
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.live_on(31'000, {"box"});
  REQUIRE(world.count_sent<StopAttempt>(ref) == 1);
  CHECK(world.last_sent<StopAttempt>()->outcome == Outcome::timeout);
  world.finished("box", ref, Outcome::ok);   // it had ended before the stop came
  world.committed("box", ref);
  CHECK(world.states(job) == "a done");
}

TEST_CASE("reactor: a worker that no longer mentions an attempt has lost it") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.heartbeat("box", {pulse_of(ref, 0, 0)});
  for (int i = 0; i < 31; ++i) {
    world.pass(1000);
    world.heartbeat("box");
    world.tick();
  }
  CHECK(world.states(job) == "a ready");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::lost);
}

TEST_CASE("reactor: a worker that cancels by itself has lost the attempt") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.finished("box", {job, "a", {1}}, Outcome::cancelled, "worker is shutting down");
  CHECK(world.states(job) == "a ready");
  CHECK(world.stage(job, "a").attempts[0].outcome == Outcome::lost);
}

TEST_CASE("reactor: a worker that is told to end costs its stage no retry") {
  World world;
  JobSpec spec = dag("a");
  stage_of(spec, "a").retry.max = 0;
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.finished("box", {job, "a", {1}}, Outcome::cancelled, "worker is shutting down");
  CHECK(world.states(job) == "a ready");
  world.hello("box", 1, {}, "again");
  world.pass(60'000);
  world.heartbeat("box");
  world.tick(0);
  world.finished("box", {job, "a", {2}}, Outcome::crash, "signal 9");
  CHECK(world.states(job) == "a failed#2");   // its own fault counts as ever
}

TEST_CASE("reactor: an attempt that is gone when somebody resumes costs no retry") {
  for (const bool resumed : {false, true}) {
    World world;
    JobSpec spec = dag("a");
    stage_of(spec, "a").retry.max = 0;
    const JobId job = world.submit(spec);
    world.hello("box", 1);
    world.started("box", {job, "a", {1}});
    world.restart();
    if (resumed) CHECK(world.resume(job).ok());
    world.hello("box", 1, {}, "again");   // it holds nothing
    world.tick(0);
    CHECK(world.states(job) == (resumed ? "a assigned#2" : "a failed"));
  }
}

TEST_CASE("reactor: resume does not wait for a back-off") {
  World world;
  JobSpec spec = dag("a");
  stage_of(spec, "a").retry = {2, 30'000};
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.finished("box", {job, "a", {1}}, Outcome::crash, "signal 9");
  world.tick(1);
  CHECK(world.states(job) == "a ready");
  CHECK(world.resume(job).ok());
  CHECK(world.states(job) == "a assigned#2");
}

TEST_CASE("watchdog: memory of the process tree over its limit ends the attempt as oom") {
  World world;
  JobSpec spec = dag("a");
  spec.watchdog.memory_max_bytes = std::int64_t{1} << 30;
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  AttemptPulse pulse = pulse_of({job, "a", {1}}, 0, 0);
  pulse.memory_bytes = std::int64_t{1} << 30;
  world.heartbeat("box", {pulse});
  world.tick(1);
  CHECK(world.last_sent<StopAttempt>() == nullptr);  // at the limit is inside
  pulse.memory_bytes += 1 << 20;
  world.heartbeat("box", {pulse});
  world.tick(1);
  REQUIRE(world.last_sent<StopAttempt>() != nullptr);
  CHECK(world.last_sent<StopAttempt>()->outcome == Outcome::oom);
  CHECK(world.last_sent<StopAttempt>()->reason == "holds 1025 MiB, limit 1024 MiB");
}

TEST_CASE("watchdog: too little disk ends the attempt as disk, unknown is no alarm") {
  for (const std::int64_t free :
       {std::int64_t{-1}, std::int64_t{9} << 30, std::int64_t{11} << 30}) {
    World world;
    JobSpec spec = dag("a");
    spec.watchdog.min_disk_free_bytes = std::int64_t{10} << 30;
    const JobId job = world.submit(spec);
    world.hello("box", 1);
    world.started("box", {job, "a", {1}});
    Heartbeat heartbeat;
    heartbeat.worker = {"box"};
    heartbeat.session = world.sessions["box"];
    heartbeat.server_epoch = world.core().epoch.value;
    heartbeat.disk_free_bytes = free;
    heartbeat.attempts = {pulse_of({job, "a", {1}}, 0, 0)};
    world.run([&](Turn& turn) { on_heartbeat(turn, heartbeat); });
    world.tick(1);
    const bool is_stopped = world.last_sent<StopAttempt>() != nullptr;
    CHECK(is_stopped == (free == std::int64_t{9} << 30));
  }
}

TEST_CASE("reactor: an attempt that fetches its inputs is answered for, and has not started") {
  World world;
  world.hello("box");
  const JobId job = world.submit(dag("a"));
  const AttemptRef ref{job, "a", {1}};
  AttemptPulse pulse;
  pulse.ref = ref;
  pulse.preparing = true;
  for (int second = 0; second < 200; ++second) {  // longer than any order waits for its answer
    world.pass(1'000);
    world.heartbeat("box", {pulse});
    world.tick();
  }
  CHECK(world.states(job) == "a assigned");
  world.restart();
  world.hello("box", 1, {{ref, false, true}});
  CHECK(world.states(job) == "a assigned");
  world.started("box", ref);
  CHECK(world.states(job) == "a running");
}

TEST_CASE("reactor: an input that is away costs no retry, also over a restart") {
  World world;
  world.hello("box");
  const JobId job = world.submit(dag("a"));
  AssignRefused refused;
  refused.reason = "worker far, which has the checkpoint, is away";
  refused.input_missing = true;
  for (int attempt = 1; attempt <= 6; ++attempt) {
    refused.ref = {job, "a", {attempt}};
    world.run([&](Turn& turn) { on_assign_refused(turn, world.from("box"), refused); });
    REQUIRE(world.stage(job, "a").state == StageState::ready);
    if (attempt == 3) {
      world.restart();
      world.hello("box");
    }
    world.live_on(35'000, {"box"});
    REQUIRE(world.stage(job, "a").state == StageState::assigned);
  }
  CHECK(world.stage(job, "a").ended[static_cast<std::size_t>(Outcome::lost)] == 0);
}
