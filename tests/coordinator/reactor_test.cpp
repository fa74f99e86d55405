// The life of a job with friendly workers, and every state x event of a stage.
#include "coordinator/reactor.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;
using nightshift::testing::stage_of;
using nightshift::testing::World;

TEST_CASE("reactor: a diamond runs to its end, with what was measured stored") {
  World world;
  const JobId job = world.submit(dag("a -> b -> d\na -> c -> d"));
  CHECK(world.states(job) == "a ready, b waiting, c waiting, d waiting");
  world.hello("box", 2);
  world.complete("box", {job, "a", {1}});
  CHECK(world.states(job) == "a done, b assigned, c assigned, d waiting");
  world.complete("box", {job, "b", {1}});
  world.complete("box", {job, "c", {1}});
  const auto* order = world.last_sent<AssignAttempt>();
  REQUIRE(order->ref.stage == "d");
  CHECK(order->order.inputs.size() == 3);   // every ancestor, not the direct needs alone
  CHECK(order->order.inputs.at("a") == "/checkpoints/1/a#1");
  CHECK(order->input_digests.at("c") == "d1/c#1");
  world.complete("box", {job, "d", {1}});
  CHECK(world.core().jobs.at(job).state == JobState::done);
  CHECK(world.stage(job, "d").result->metrics.at(0).value == 12.5);
  CHECK(world.fake.attempt({job, "d", {1}}).checkpoint->digest == "d1/d#1");
}

TEST_CASE("reactor: messages leave only after the commit") {
  World world;
  world.submit(dag("a"));
  world.sent.clear();
  world.store.next = nightshift::testing::FailingStore::Fault::before_writing;
  world.hello("box", 1);
  CHECK(world.sent.empty());
  CHECK(world.last_error.has_value());
  world.hello("box", 1);
  CHECK(world.last_sent<AssignAttempt>() != nullptr);
}

TEST_CASE("reactor: the commit of a checkpoint is the coordinator's decision") {
  World world;
  const JobId job = world.submit(dag("a"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.finished("box", ref, Outcome::ok);
  CHECK(world.states(job) == "a running");
  CHECK(world.count_sent<CommitCheckpoint>(ref) == 1);
  CHECK(world.count_sent<AttemptAcknowledged>(ref) == 0);
  world.committed("box", ref);
  CHECK(world.states(job) == "a done");
  CHECK(world.last_sent<AttemptAcknowledged>()->accepted);
}

TEST_CASE("reactor: a checkpoint that cannot be committed ends the attempt as disk") {
  World world;
  const JobId job = world.submit(dag("a -> b"));
  const AttemptRef ref{job, "a", {1}};
  world.hello("box", 1);
  world.started("box", ref);
  world.finished("box", ref, Outcome::ok);
  world.committed("box", ref, false);
  CHECK(world.states(job) == "a ready, b waiting");
  CHECK(world.stage(job, "a").attempts.back().outcome == Outcome::disk);
  CHECK(!world.fake.attempt(ref).checkpoint.has_value());
}

TEST_CASE("reactor: success without a checkpoint is no success") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  AttemptFinished report = world.report({job, "a", {1}}, Outcome::ok);
  report.checkpoint.reset();
  world.finished("box", report);
  CHECK(world.stage(job, "a").attempts.back().outcome == Outcome::crash);
}

TEST_CASE("reactor: each class has its own budget and back-off, then the stage fails") {
  World world;
  JobSpec spec = dag("a -> b\nc");
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  std::vector<std::int64_t> pauses;
  int attempt = 1;
  for (Outcome outcome : {Outcome::crash, Outcome::oom, Outcome::crash, Outcome::crash}) {
    const AttemptRef ref{job, "a", {attempt++}};
    world.started("box", ref);
    world.finished("box", ref, outcome, "why");
    if (world.stage(job, "a").state != StageState::ready) break;
    pauses.push_back(world.stage(job, "a").not_before_mono_ms - world.now.mono_ms);
    if (world.states(job).find("c assigned") != std::string::npos) {
      world.complete("box", {job, "c", {1}});
    }
    world.live_on(pauses.back(), {"box"});
  }
  CHECK(pauses == std::vector<std::int64_t>{30'000, 30'000, 60'000});
  CHECK(world.states(job) == "a failed#4, b blocked, c done");
  CHECK(world.core().jobs.at(job).state == JobState::failed);
  CHECK(world.last_sent<AttemptAcknowledged>()->accepted);
}

TEST_CASE("reactor: a retry carries the reason, and the log tail is kept for each attempt") {
  World world;
  const JobId job = world.submit(dag("a"));
  world.hello("box", 1);
  world.started("box", {job, "a", {1}});
  world.finished("box", {job, "a", {1}}, Outcome::oom, "killed at 23.1 GiB");
  world.live_on(30'000, {"box"});
  CHECK(world.last_sent<AssignAttempt>()->retry_reason == "oom: killed at 23.1 GiB");
  CHECK(world.last_sent<AssignAttempt>()->ref.attempt.value == 2);
  CHECK(world.stage(job, "a").attempts[0].log_tail == "last words of 1/a#1");
}

TEST_CASE("reactor: what would end the same way is not tried again") {
  for (Outcome outcome : {Outcome::error, Outcome::red_line, Outcome::no_progress}) {
    World world;
    const JobId job = world.submit(dag("a -> b"));
    world.hello("box", 1);
    world.started("box", {job, "a", {1}});
    AttemptFinished report = world.report({job, "a", {1}}, outcome, "as said");
    report.metrics = {{"ttft", 200, "ms", "", ""}};
    world.finished("box", report);
    CHECK(world.states(job) == "a failed, b blocked");
    CHECK(world.stage(job, "a").result->metrics.size() == 1);   // measured, though it failed
    CHECK(!world.stage(job, "a").result->checkpoint.has_value());
  }
}

TEST_CASE("reactor: restarts that come no further end as failed") {
  World world;
  JobSpec spec = dag("a");
  spec.stages[0].retry.max = 100;
  spec.stages[0].retry.backoff_ms = 0;
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  int attempts = 0;
  while (world.stage(job, "a").state != StageState::failed && attempts < 50) {
    const AttemptRef ref = attempt_of(world.core(), {job, 0});
    world.started("box", ref);
    AttemptPulse pulse;
    pulse.ref = ref;
    pulse.progress = ProgressReport{std::min(attempts, 2) * 10, 128, "layers", 0, ""};
    world.heartbeat("box", {pulse});
    world.finished("box", ref, Outcome::crash);
    attempts += 1;
  }
  CHECK(attempts == 6);   // 0, 10, 20, then three without more
  CHECK(world.count_events("event=no_progress") == 1);
}

TEST_CASE("reactor: a submit that is sent again counts once") {
  World world;
  const JobId job = world.submit(dag("a"), "ann", "request-1");
  CHECK(world.submit(dag("a"), "ann", "request-1") == job);
  CHECK(world.submit(dag("a"), "ann", "request-2") != job);
  world.restart();
  CHECK(world.submit(dag("a"), "ann", "request-1") == job);
  const auto empty = world.run([](Turn& turn) { return on_submit(turn, {JobSpec{}, "", "", ""}); });
  CHECK(empty.error().code == ErrorCode::invalid_argument);
}

TEST_CASE("reactor: an equal result of another job is taken") {
  World world;
  const JobId first = world.submit(dag("a -> b"));
  world.hello("box", 1);
  world.complete("box", {first, "a", {1}});
  const JobId second = world.submit(dag("a -> b", "other"));
  CHECK(world.states(second) == "a reused, b ready");
  CHECK(world.stage(second, "a").reuse_reason == "same content key as job 1 attempt 1");
  CHECK(world.stage(second, "a").result->metrics.size() == 1);
  // b of job 2 is ready; job 1's b ends first, and its result is taken when a slot is free.
  world.complete("box", {first, "b", {1}});
  CHECK(world.states(second) == "a reused, b reused");
  CHECK(world.core().jobs.at(second).state == JobState::done);
  world.restart();
  CHECK(world.states(second) == "a reused, b reused");
  CHECK(world.submit(dag("a -> b")).value == 3);
  CHECK(world.states({3}) == "a reused, b reused");
}

TEST_CASE("reactor: a result whose checkpoint is gone is made again, with the reason") {
  ReactorOptions options;
  bool exists = true;
  options.checkpoint_exists = [&exists](const std::string&) { return exists; };
  World world(options);
  const JobId first = world.submit(dag("a"));
  world.hello("box", 1);
  world.complete("box", {first, "a", {1}});
  exists = false;
  const JobId second = world.submit(dag("a"));
  CHECK(world.states(second) == "a assigned");
  CHECK(world.stage(second, "a").no_reuse_reason ==
        "the equal result of 1/a#1 is gone: /checkpoints/1/a#1");
}

TEST_CASE("reactor: a measurement of another device is not taken") {
  World world;
  JobSpec spec = dag("baseline");
  spec.stages[0].kind = "baseline";
  WorkerResources cpu, gpu;
  cpu.device_class = "cpu-avx512";
  gpu.device_class = "sm_90";
  const JobId first = world.submit(spec);
  world.hello("cpu", 1, {}, "s1", cpu);
  world.complete("cpu", {first, "baseline", {1}});
  world.run([](Turn& turn) { on_worker_lost(turn, {"cpu"}, "test"); });
  world.hello("gpu", 1, {}, "s1", gpu);
  CHECK(world.states(world.submit(spec)) == "baseline assigned");
  world.hello("cpu", 1, {}, "s2", cpu);
  CHECK(world.states(world.submit(spec)) == "baseline reused");
}

TEST_CASE("reactor: people are told once, in the transaction of the change") {
  World world;
  JobSpec spec = dag("a -> b");
  spec.notify = {{{"done", "failed", "retry"}, "https://x", "", "", ""},
                 {{"done"}, "", "", "", ""}};
  const JobId job = world.submit(spec);
  world.hello("box", 1);
  world.complete("box", {job, "a", {1}});
  CHECK(world.core().outbox.empty());
  world.complete("box", {job, "b", {1}});
  CHECK(world.core().outbox.size() == 2);
  const OutboxRow row = outbox_due(world.core(), world.now).front();
  CHECK(row.text.find("done") != std::string::npos);
  world.restart();
  REQUIRE(world.core().outbox.contains(row.id));
  const auto tried = [&](bool ok, bool maybe) {
    world.run([&](Turn& turn) { on_outbox_tried(turn, row.id, ok, maybe, "timeout"); });
  };
  tried(false, true);
  CHECK(outbox_due(world.core(), world.now).size() == 1);   // this one waits
  for (int i = 0; i < 4; ++i) tried(false, true);
  CHECK(!world.core().outbox.contains(row.id));
  CHECK(world.count_events("event=notification_uncertain") == 1);
}

namespace {

// Brings a stage named b, which needs a and is needed by c, into the state.
JobId bring(World& world, StageState state) {
  const JobId job = world.submit(dag("a -> b -> c"));
  if (state == StageState::waiting) return job;
  if (state == StageState::blocked) {
    REQUIRE(world.cancel(job, "a").ok());
    return job;
  }
  world.hello("box", 1);
  world.complete("box", {job, "a", {1}});
  const AttemptRef ref{job, "b", {1}};
  switch (state) {
    case StageState::assigned: break;
    case StageState::running: world.started("box", ref); break;
    case StageState::ready: world.finished("box", ref, Outcome::crash); break;
    case StageState::failed: world.finished("box", ref, Outcome::error); break;
    case StageState::cancelled: REQUIRE(world.cancel(job, "b").ok()); break;
    case StageState::done: world.complete("box", ref); break;
    case StageState::reused: {
      world.complete("box", ref);
      return world.submit(dag("a -> b -> c -> d"));
    }
    default: break;
  }
  return job;
}

using Event = std::function<void(World&, const AttemptRef&)>;

const std::map<std::string, Event>& all_events() {
  static const std::map<std::string, Event> events = {
      {"started", [](World& w, const AttemptRef& r) { w.started("box", r); }},
      {"ok", [](World& w, const AttemptRef& r) { w.finished("box", r, Outcome::ok); }},
      {"crash", [](World& w, const AttemptRef& r) { w.finished("box", r, Outcome::crash); }},
      {"error", [](World& w, const AttemptRef& r) { w.finished("box", r, Outcome::error); }},
      {"committed", [](World& w, const AttemptRef& r) { w.committed("box", r); }},
      {"refused",
       [](World& w, const AttemptRef& r) {
         w.run([&](Turn& turn) { on_assign_refused(turn, w.from("box"), {r, "full", false, ""}); });
       }},
      {"cancel", [](World& w, const AttemptRef& r) { (void)w.cancel(r.job, "b").ok(); }},
      {"resume", [](World& w, const AttemptRef& r) { (void)w.resume(r.job).ok(); }},
      {"lost",
       [](World& w, const AttemptRef&) {
         w.run([](Turn& turn) { on_worker_lost(turn, {"box"}, "test"); });
       }},
      {"hello", [](World& w, const AttemptRef&) { w.hello("box", 1); }},
      {"new session", [](World& w, const AttemptRef&) { w.hello("box", 1, {}, "s2"); }},
      {"restart", [](World& w, const AttemptRef&) { w.restart(); }},
      {"long silence", [](World& w, const AttemptRef&) { w.tick(3'600'000); }},
  };
  return events;
}

}  // namespace

TEST_CASE("reactor: every state and event, with this, an older and a newer attempt") {
  for (StageState state : all_stage_states) {
    for (const auto& [name, event] : all_events()) {
      for (int attempt : {0, 1, 2, 99}) {
        CAPTURE(to_string(state));
        CAPTURE(name);
        CAPTURE(attempt);
        World world;
        const JobId job = bring(world, state);
        REQUIRE(world.stage(job, "b").state == state);
        const AttemptNumber before = world.stage(job, "b").attempt;
        event(world, {job, "b", {attempt}});
        CHECK(!world.last_error.has_value());
        CHECK(world.stage(job, "b").attempt >= before);
        const bool current = attempt == before.value && is_active(state);
        const bool report = name == "started" || name == "ok" || name == "crash" ||
                            name == "error" || name == "committed" || name == "refused";
        if (report && !current) {
          CHECK(world.stage(job, "b").state == state);
          // Whatever the restart finds in the store is the same.
          const std::string states = world.states(job);
          world.restart();
          CHECK(world.states(job) == states);
        }
      }
    }
  }
}
