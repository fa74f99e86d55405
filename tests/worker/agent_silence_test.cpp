// What the agent does when its coordinator says nothing, and when it is to end.
#include <doctest/doctest.h>

#include "tests/worker/agent_support.h"

using namespace nightshift;
using namespace nightshift::test;

TEST_CASE("agent: a hello without answer is said again after 1, 2, 4 ... 32 s") {
  AgentRun run;
  run.agent.on_connected(0);
  std::vector<std::int64_t> gaps;
  std::int64_t last = 0;
  for (std::int64_t now = 0; now < 10'000; now += 100) {
    const auto before = run.sent<WorkerHello>().size();
    run.tick(now);
    if (run.sent<WorkerHello>().size() > before) {
      gaps.push_back(now - last);
      last = now;
    }
  }
  CHECK(gaps == std::vector<std::int64_t>{1'000, 2'000, 4'000});
}

TEST_CASE("agent: past the lease it makes its connection anew, backing off 1 -> 32 s") {
  AgentRun run;
  run.welcome(1);
  std::vector<std::int64_t> at;
  for (std::int64_t now = 0; now < 200'000; now += 500) {
    const auto before = run.done<Reconnect>().size();
    run.tick(now);
    if (run.done<Reconnect>().size() > before) at.push_back(now);
  }
  REQUIRE(at.size() >= 8);
  CHECK(at[0] == 10'500);
  CHECK(at[1] - at[0] == 1'000);
  CHECK(at[2] - at[1] == 2'000);
  CHECK(at[6] - at[5] == 32'000);
  CHECK(at[7] - at[6] == 32'000);
}

TEST_CASE("agent: any word renews the lease; half of it without one asks") {
  AgentRun run;
  run.welcome(1);
  run.tick(5'500);
  CHECK(run.sent<WorkerHello>().size() == 2);
  run.message(WorkerWelcome{1, 1'000, 10'000});
  for (std::int64_t now = 6'000; now < 60'000; now += 1'000) {
    run.tick(now);
    run.message(LogRequest{1, make_ref(3, "quantize", 1), 0, 10});
  }
  CHECK(run.sent<WorkerHello>().size() == 2);
  CHECK(run.done<Reconnect>().empty());
}

TEST_CASE("agent: cut off, its stages run on; only after fence_after_ms they end as lost") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  for (std::int64_t now = 0; now <= 600'000; now += 1'000) run.tick(now);
  CHECK(run.done<StopStage>().empty());
  for (std::int64_t now = 601'000; now <= 620'000; now += 1'000) run.tick(now);
  REQUIRE(run.done<StopStage>().size() == 1);
  run.finish(ref, {-1, 15, false});
  CHECK(run.last<AttemptFinished>().outcome == Outcome::lost);
  CHECK(run.last<AttemptFinished>().reason.find("no word from the coordinator") !=
        std::string::npos);
  run.welcome(2);  // and it is there when the coordinator is back
  CHECK(run.last<AttemptFinished>().outcome == Outcome::lost);
  CHECK(run.last<WorkerHello>().held.size() == 1);
}

TEST_CASE("agent: cut off, it keeps the job's limits itself; with the coordinator it does not") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = make_ref(3, "quantize", 1);
  AssignAttempt order = make_order(ref);
  order.wall_limit_ms = 20'000;
  run.message(order);
  run.agent.on_stage_started(ref, 4711, "log", 0);
  for (std::int64_t now = 0; now <= 40'000; now += 1'000) {
    run.tick(now);
    run.message(LogRequest{1, ref, 0, 10});
  }
  CHECK(run.done<StopStage>().empty());
  for (std::int64_t now = 41'000; now <= 90'000; now += 1'000) run.tick(now);
  CHECK(run.done<StopStage>().size() == 1);
  run.finish(ref, {-1, 15, false});
  CHECK(run.last<AttemptFinished>().outcome == Outcome::timeout);
}

TEST_CASE("cut-off watch: unknown is never bad, modes below act end nothing, phases may be quiet") {
  AttemptPulse pulse;
  pulse.memory_bytes = 2'000;
  pulse.progress_age_ms = pulse.log_age_ms = 700'000;
  WatchdogSpec spec;
  spec.min_disk_free_bytes = 1'000;
  CHECK(judge_alone(pulse, {}, spec, 0).outcome == Outcome::hung);
  pulse.quiet_left_ms = 1;
  CHECK(judge_alone(pulse, {}, spec, 0).outcome == Outcome::ok);
  CHECK(judge_alone(pulse, {999, std::nullopt}, spec, 0).outcome == Outcome::disk);
  CHECK(judge_alone(pulse, {1'000, std::nullopt}, spec, 0).outcome == Outcome::ok);
  spec.memory_max_bytes = 1'999;
  CHECK(judge_alone(pulse, {}, spec, 0).outcome == Outcome::oom);
  spec.mode = WatchdogMode::warn;
  CHECK(judge_alone(pulse, {}, spec, 0).outcome == Outcome::ok);
  // One of both clocks is enough to be alive.
  spec.mode = WatchdogMode::act;
  spec.memory_max_bytes = 0;
  pulse.quiet_left_ms = 0;
  pulse.log_age_ms = 100;
  CHECK(judge_alone(pulse, {}, spec, 0).outcome == Outcome::ok);
}

TEST_CASE("cut-off watch: three looks in a row with the same verdict, not two and not mixed") {
  CutOffWatch watch;
  const Verdict hung{Outcome::hung, ""};
  const Verdict disk{Outcome::disk, ""};
  CHECK_FALSE(watch.on_look(hung));
  CHECK_FALSE(watch.on_look(hung));
  CHECK_FALSE(watch.on_look({}));
  CHECK_FALSE(watch.on_look(hung));
  CHECK_FALSE(watch.on_look(hung));
  CHECK_FALSE(watch.on_look(disk));
  CHECK_FALSE(watch.on_look(disk));
  CHECK(watch.on_look(disk));
}

TEST_CASE("agent: told to end, it stops its stages as lost, takes no more and leaves") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.agent.on_terminate("the parent is gone", run.now);
  CHECK(run.done<StopStage>().size() == 1);
  CHECK(run.done<ExitWorker>().empty());
  run.message(make_order(make_ref(3, "fuse", 1)));
  CHECK(run.last<AssignRefused>().reason.find("the parent is gone") != std::string::npos);
  run.finish(ref, {-1, 15, false});
  CHECK(run.last<AttemptFinished>().outcome == Outcome::lost);
  run.tick(run.now + 100);
  CHECK(run.done<ExitWorker>().empty());  // waits for the acknowledgement
  run.message(AttemptAcknowledged{ref, true});
  run.tick(run.now + 100);
  CHECK(run.done<ExitWorker>().size() == 1);
}

TEST_CASE("agent: told to end without a coordinator, it leaves at once and keeps its results") {
  AttemptFinished result;
  result.ref = make_ref(3, "quantize", 2);
  AgentRun run(1, {result});
  run.agent.on_terminate("signal 15", 0);
  CHECK(run.done<ExitWorker>().size() == 1);
  CHECK(run.done<ForgetAttempt>().empty());
}

TEST_CASE("agent: messages that are not for a worker, and garbage, change nothing") {
  AgentRun run;
  run.welcome(1);
  run.message(SubmitJob{});
  run.message(AttemptFinished{});
  run.message(JobSubmitted{JobId{4}});
  run.agent.on_bad_message({ErrorCode::invalid_argument, "magic", "", ""}, run.now);
  run.collect();
  CHECK(run.agent.running().empty());
  CHECK(run.done<StartStage>().empty());
}

TEST_CASE("agent: an end that a full queue dropped is reported again while nobody answers") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.finish(ref, {0, 0, false});
  for (std::int64_t now = 0; now <= 31'000; now += 1'000) {
    run.tick(now);
    run.message(WorkerWelcome{1, 1'000, 10'000});
  }
  CHECK(run.sent<AttemptFinished>().size() >= 3);
  run.message(AttemptAcknowledged{ref, true});
  const auto before = run.sent<AttemptFinished>().size();
  for (std::int64_t now = 32'000; now <= 60'000; now += 1'000) {
    run.tick(now);
    run.message(WorkerWelcome{1, 1'000, 10'000});
  }
  CHECK(run.sent<AttemptFinished>().size() == before);
}
