// The agent's rules, without sockets, processes or a clock.
#include <doctest/doctest.h>

#include "tests/worker/agent_support.h"

using namespace nightshift;
using namespace nightshift::test;

TEST_CASE("agent: hello on connecting, heartbeats after the welcome only") {
  AgentRun run;
  CHECK(run.sent<WorkerHello>().empty());
  run.agent.on_connected(0);
  REQUIRE(run.sent<WorkerHello>().size() == 1);
  CHECK(run.last<WorkerHello>().worker.value == "box1");
  CHECK(run.last<WorkerHello>().held.empty());
  run.tick(500);
  CHECK(run.sent<Heartbeat>().empty());
  run.agent.on_message(WorkerWelcome{7, 1000, 10'000}, 600);
  for (std::int64_t now = 600; now <= 3'600; now += 100) run.tick(now);
  CHECK(run.sent<Heartbeat>().size() == 4);  // 0.6, 1.6, 2.6, 3.6 s
  CHECK(run.last<Heartbeat>().server_epoch == 7);
}

TEST_CASE("agent: an order starts a stage once, however often it comes") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = make_ref(3, "quantize", 1);
  run.message(make_order(ref));
  run.message(make_order(ref));
  CHECK(run.done<StartStage>().size() == 1);
  CHECK(run.sent<AttemptStarted>().empty());
  run.agent.on_stage_started(ref, 4711, "/root/log", run.now);
  run.message(make_order(ref));
  run.collect();
  CHECK(run.done<StartStage>().size() == 1);
  CHECK(run.sent<AttemptStarted>().size() == 2);
  CHECK(run.last<AttemptStarted>().pid == 4711);
  run.finish(ref, {0, 0, false});
  run.message(make_order(ref));
  CHECK(run.done<StartStage>().size() == 1);
  CHECK(run.sent<AttemptFinished>().size() == 2);
}

TEST_CASE("agent: no free slot, an older epoch, the same stage twice: refused with the reason") {
  AgentRun run(2);
  run.welcome(5);
  run.message(make_order(make_ref(3, "quantize", 1), 4));
  CHECK(run.last<AssignRefused>().reason.find("epoch 4") != std::string::npos);
  run.message(make_order(make_ref(3, "quantize", 1), 5));
  run.message(make_order(make_ref(3, "quantize", 2), 5));
  CHECK(run.last<AssignRefused>().reason.find("3/quantize#1") != std::string::npos);
  run.message(make_order(make_ref(3, "fuse", 1), 5));
  run.message(make_order(make_ref(4, "fuse", 1), 5));
  CHECK(run.last<AssignRefused>().reason.find("no free slot: 2 of 2") != std::string::npos);
  CHECK(run.sent<AssignRefused>().size() == 3);
  CHECK(run.done<StartStage>().size() == 2);
}

TEST_CASE("agent: an order of an epoch not known yet is refused and answered with hello") {
  AgentRun run;
  run.welcome(5);
  const auto hellos = run.sent<WorkerHello>().size();
  run.message(make_order(make_ref(3, "quantize", 1), 6));
  CHECK(run.sent<AssignRefused>().size() == 1);
  CHECK(run.sent<WorkerHello>().size() == hellos + 1);
}

TEST_CASE("agent: a welcome of an older epoch changes nothing and is no sign of life") {
  AgentRun run;
  run.welcome(5);
  run.message(WorkerWelcome{4, 1000, 10'000});
  run.message(make_order(make_ref(3, "quantize", 1), 5));
  CHECK(run.sent<AssignRefused>().empty());
}

TEST_CASE("agent: a new epoch in the answer to a heartbeat: says hello, then reports all again") {
  AgentRun run;
  run.welcome(5);
  const AttemptRef ref = run.start_stage("quantize", 5);
  run.message(WorkerWelcome{6, 1000, 10'000});
  REQUIRE(run.last<WorkerHello>().held.size() == 1);
  CHECK(run.last<WorkerHello>().held[0].ref == ref);
  CHECK_FALSE(run.last<WorkerHello>().held[0].finished);
  const auto started = run.sent<AttemptStarted>().size();
  run.message(WorkerWelcome{6, 1000, 10'000});
  CHECK(run.sent<AttemptStarted>().size() == started + 1);
  const auto hellos = run.sent<WorkerHello>().size();
  run.message(WorkerWelcome{6, 1000, 10'000});  // answers to further heartbeats
  CHECK(run.sent<WorkerHello>().size() == hellos);
  CHECK(run.sent<AttemptStarted>().size() == started + 1);
}

TEST_CASE("agent: finished is said only after the result is stored, and until it is acknowledged") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.agent.on_stage_exited(ref, {0, 0, false});
  run.collect();
  CHECK(run.done<FinishAttempt>().empty());  // grandchildren may live
  run.agent.on_tree_empty(ref, 0, run.now);
  run.agent.on_tree_empty(ref, 0, run.now);
  run.collect();
  REQUIRE(run.done<FinishAttempt>().size() == 1);
  CHECK(run.sent<AttemptFinished>().empty());
  run.agent.on_result_stored(run.done<FinishAttempt>()[0].draft);
  run.collect();
  CHECK(run.sent<AttemptFinished>().size() == 1);
  run.agent.on_disconnected(run.now);
  run.welcome(1);
  CHECK(run.sent<AttemptFinished>().size() == 2);
  CHECK(run.last<WorkerHello>().held[0].finished);
  run.message(AttemptAcknowledged{ref, true});
  run.message(AttemptAcknowledged{ref, true});
  CHECK(run.done<ForgetAttempt>().size() == 1);
  run.agent.on_disconnected(run.now);
  run.welcome(1);
  CHECK(run.sent<AttemptFinished>().size() == 2);
  CHECK(run.last<WorkerHello>().held.empty());
}

TEST_CASE("agent: an acknowledgement of a running attempt does not make it forgotten") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.message(AttemptAcknowledged{ref, false});
  CHECK(run.done<ForgetAttempt>().empty());
  CHECK(run.agent.running().size() == 1);
}

TEST_CASE("agent: results found on disk are held, reported, and can be committed") {
  AttemptFinished result;
  result.ref = make_ref(3, "quantize", 2);
  result.outcome = Outcome::ok;
  AgentRun run(1, {result});
  run.welcome(9);
  REQUIRE(run.last<WorkerHello>().held.size() == 1);
  CHECK(run.last<WorkerHello>().held[0].finished);
  CHECK(run.sent<AttemptFinished>().size() == 1);
  run.message(CommitCheckpoint{result.ref});
  run.message(CommitCheckpoint{result.ref});
  REQUIRE(run.done<CommitAttempt>().size() == 1);  // one rename at a time
  run.agent.on_committed(result.ref, {});
  run.message(CommitCheckpoint{result.ref});  // again: answered from memory
  CHECK(run.done<CommitAttempt>().size() == 1);
  CHECK(run.sent<CheckpointCommitted>().size() == 2);
  CHECK(run.last<CheckpointCommitted>().ok);
  run.agent.on_disconnected(run.now);
  run.welcome(9);
  CHECK(run.last<AttemptFinished>().committed);
}

TEST_CASE("agent: a commit of a running attempt is refused, of a forgotten one the disk answers") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.message(CommitCheckpoint{ref});
  CHECK_FALSE(run.last<CheckpointCommitted>().ok);
  run.message(CommitCheckpoint{make_ref(3, "fuse", 1)});
  REQUIRE(run.done<CommitAttempt>().size() == 1);
  run.agent.on_committed(make_ref(3, "fuse", 1), Error{ErrorCode::not_found, "gone", "", ""});
  run.collect();
  CHECK(run.last<CheckpointCommitted>().reason == "gone");
}

TEST_CASE("agent: a stop decides class and reason, even when the stage ends well in its grace") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.message(StopAttempt{ref, Outcome::hung, "no progress for 600 s"});
  run.message(StopAttempt{ref, Outcome::hung, "no progress for 600 s"});
  CHECK(run.done<StopStage>().size() == 1);
  run.message(StopAttempt{ref, Outcome::cancelled, "ada asked"});  // a person wins
  run.message(StopAttempt{ref, Outcome::hung, "again"});
  run.finish(ref, {0, 0, false});
  CHECK(run.last<AttemptFinished>().outcome == Outcome::cancelled);
  CHECK(run.last<AttemptFinished>().reason == "ada asked");
  CHECK(run.last<AttemptFinished>().exit_code == 0);
}

TEST_CASE("agent: a stop that comes while the folder is made ends the stage when it starts") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = make_ref(3, "quantize", 1);
  run.message(make_order(ref));
  run.message(StopAttempt{ref, Outcome::cancelled, "ada asked"});
  CHECK(run.done<StopStage>().empty());
  run.agent.on_stage_started(ref, 4711, "log", run.now);
  run.collect();
  CHECK(run.done<StopStage>().size() == 1);
}

TEST_CASE("agent: a stop of what ended or was never here gets an end as its answer") {
  AgentRun run;
  run.welcome(1);
  run.message(StopAttempt{make_ref(9, "soak", 4), Outcome::cancelled, "zombie"});
  REQUIRE(run.sent<AttemptFinished>().size() == 1);
  CHECK(run.last<AttemptFinished>().outcome == Outcome::cancelled);
  const AttemptRef ref = run.start_stage("quantize", 1);
  run.finish(ref, {0, 0, false});
  run.message(StopAttempt{ref, Outcome::cancelled, "late"});
  CHECK(run.last<AttemptFinished>().outcome == Outcome::ok);
  CHECK(run.done<StopStage>().empty());
}

TEST_CASE("agent: a folder that cannot be made refuses the order, a full disk ends the attempt") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = make_ref(3, "quantize", 1);
  run.message(make_order(ref));
  run.agent.on_prepare_failed(ref, {ErrorCode::conflict, "has run here before", "", ""}, run.now);
  run.collect();
  CHECK(run.last<AssignRefused>().reason.find("has run here") != std::string::npos);
  CHECK(run.agent.running().empty());
  run.message(make_order(ref));
  run.agent.on_prepare_failed(ref, {ErrorCode::out_of_disk, "no space", "/x", ""}, run.now);
  run.collect();
  CHECK(run.sent<AssignRefused>().size() == 1);
  REQUIRE(run.done<FinishAttempt>().size() == 1);
  CHECK(run.done<FinishAttempt>()[0].draft.outcome == Outcome::disk);
}

TEST_CASE("agent: pulses of what runs; not of an order that may still be refused") {
  AgentRun run;
  run.welcome(1);
  const AttemptRef ref = make_ref(3, "quantize", 1);
  run.message(make_order(ref));
  run.tick(run.now + 1'000);
  CHECK(run.last<Heartbeat>().attempts.empty());
  run.agent.on_stage_started(ref, 4711, "log", run.now);
  run.agent.on_sample(ref, {1'000, 50}, run.now);
  run.agent.on_report_line(ref, R"({"phase":{"name":"load","quiet_s":60}})", run.now);
  run.tick(run.now + 1'000);
  REQUIRE(run.last<Heartbeat>().attempts.size() == 1);
  const AttemptPulse pulse = run.last<Heartbeat>().attempts[0];
  CHECK(pulse.memory_bytes == 1'000);
  CHECK(pulse.log_bytes == 50);
  CHECK(pulse.phase == "load");
  CHECK(pulse.quiet_left_ms == 59'000);
  run.agent.on_stage_exited(ref, {0, 0, false});
  run.agent.on_tree_empty(ref, 0, run.now);
  run.tick(run.now + 1'000);
  CHECK(run.last<Heartbeat>().attempts[0].phase == "sealing");
  CHECK(run.last<Heartbeat>().attempts[0].quiet_left_ms > 0);
}
