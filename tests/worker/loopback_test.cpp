// The real program against a coordinator of a few lines: a ROUTER with CURVE in this process.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/worker/loopback_support.h"
#include "worker/checkpoint_seal.h"
#include "worker/process_tree.h"

using namespace nightshift;
using namespace nightshift::test;

TEST_CASE("loopback: hello, welcome, assign, started, finished, commit, committed, acknowledged") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  WorkerProcess worker(folder.path(), coordinator.access_path());
  const WorkerHello hello = coordinator.expect<WorkerHello>();
  CHECK(hello.worker.value == "box1");
  CHECK(hello.resources.labels == std::vector<std::string>{"night", "big"});
  CHECK(hello.held.empty());
  coordinator.send(WorkerWelcome{1, 100, 5'000});

  const AttemptRef ref = make_ref(3, "quantize", 1);
  AssignAttempt order = make_order(ref);
  order.command = {
      "sh", "-c",
      "echo working; echo '{\"metric\":{\"name\":\"ppl\",\"value\":7.5,\"unit\":\"\"}}' "
      ">&$NIGHTSHIFT_REPORT_FD; echo weights > $NIGHTSHIFT_OUT/w; sleep 0.3; "
      "echo $SEED $NIGHTSHIFT_ATTEMPT"};
  order.environment = {{"SEED", "7"}};
  coordinator.send(order);
  coordinator.send(order);  // doubled on the way
  const AttemptStarted started = coordinator.expect<AttemptStarted>();
  CHECK(started.ref == ref);
  CHECK(started.pid > 0);
  const AttemptFinished finished = coordinator.expect<AttemptFinished>();
  CHECK(finished.outcome == Outcome::ok);
  CHECK(finished.log_tail == "working\n7 1\n");
  CHECK(finished.elapsed_ms >= 250);
  REQUIRE(finished.metrics.size() == 1);
  REQUIRE(finished.checkpoint);
  CHECK_FALSE(is_folder(finished.checkpoint->path));
  coordinator.send(CommitCheckpoint{ref});
  CHECK(coordinator.expect<CheckpointCommitted>().ok);
  CHECK(check_checkpoint(finished.checkpoint->path)->digest() == finished.checkpoint->digest);
  coordinator.send(LogRequest{9, ref, 0, 7});
  CHECK(coordinator.expect<LogChunk>().bytes == "working");
  coordinator.send(AttemptAcknowledged{ref, true});
  CHECK(eventually([&] {
    return is_file(folder.path() + "/root/attempts/3/quantize/1/result.acknowledged.json");
  }));
  coordinator.send(WorkerShutdown{"the night is over"});
  CHECK(worker.wait() == 0);
}

TEST_CASE("loopback: garbage and a stop; the tree is gone when cancelled is said") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  WorkerProcess worker(folder.path(), coordinator.access_path());
  coordinator.expect<WorkerHello>();
  coordinator.send(WorkerWelcome{1, 100, 5'000});
  coordinator.send_raw({"NSHF\x01", "\xff", "rubbish"});
  coordinator.send_raw({"one frame"});
  coordinator.send_raw({"a", "b", "c", "d", "e"});
  const AttemptRef ref = make_ref(3, "soak", 1);
  AssignAttempt order = make_order(ref);
  order.command = {"sh", "-c",
                   "setsid sleep 63 & echo $! > $NIGHTSHIFT_OUT/child; "
                   "printf '1%%\\r2%%\\r' ; sleep 64"};
  coordinator.send(order);
  coordinator.expect<AttemptStarted>();
  const std::string note = folder.path() + "/root/attempts/3/soak/1/out/child";
  REQUIRE(eventually([&] { return pid_in(note) > 0; }));
  const pid_t child = pid_in(note);
  CHECK(eventually([&] {  // bytes without a newline are seen as life
    const Heartbeat beat = coordinator.expect<Heartbeat>();
    return beat.attempts.size() == 1 && beat.attempts[0].log_bytes == 6 &&
           beat.attempts[0].memory_bytes > 0;
  }));
  coordinator.send(StopAttempt{ref, Outcome::cancelled, "ada asked"});
  const AttemptFinished finished = coordinator.expect<AttemptFinished>();
  CHECK(finished.outcome == Outcome::cancelled);
  CHECK(finished.reason == "ada asked");
  CHECK(finished.log_tail == "2%\n");
  CHECK(is_gone(child));
  worker.signal(SIGTERM);
  CHECK(worker.wait() == 0);
}

TEST_CASE("loopback: killed with SIGKILL and started again: nothing runs, it holds nothing") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  const AttemptRef ref = make_ref(3, "soak", 1);
  pid_t stage = 0;
  {
    WorkerProcess worker(folder.path(), coordinator.access_path());
    coordinator.expect<WorkerHello>();
    coordinator.send(WorkerWelcome{1, 100, 5'000});
    AssignAttempt order = make_order(ref);
    order.command = {"sh", "-c", "trap '' TERM; echo 40 > $NIGHTSHIFT_STATE/step; sleep 65; :"};
    coordinator.send(order);
    stage = static_cast<pid_t>(coordinator.expect<AttemptStarted>().pid);
    REQUIRE(
        eventually([&] { return is_file(folder.path() + "/root/attempts/3/soak/1/state/step"); }));
    worker.signal(SIGKILL);
    worker.wait();
  }
  WorkerProcess worker(folder.path(), coordinator.access_path());
  const WorkerHello hello = coordinator.expect<WorkerHello>();
  CHECK(is_gone(stage));  // before it is reported by absence
  CHECK(hello.held.empty());
  coordinator.send(WorkerWelcome{1, 100, 5'000});
  AssignAttempt order = make_order(make_ref(3, "soak", 2));
  order.command = {"sh", "-c", "cat $NIGHTSHIFT_STATE/step; exit 4"};
  coordinator.send(order);
  const AttemptFinished finished = coordinator.expect<AttemptFinished>();
  CHECK(finished.outcome == Outcome::error);
  CHECK(finished.log_tail == "40\n");
}

TEST_CASE("loopback: the parent's end of the pipe closes: stages end, the result is kept") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  const AttemptRef ref = make_ref(3, "soak", 1);
  {
    WorkerProcess worker(folder.path(), coordinator.access_path());
    coordinator.expect<WorkerHello>();
    coordinator.send(WorkerWelcome{1, 100, 5'000});
    AssignAttempt order = make_order(ref);
    order.command = {"sh", "-c", "sleep 66"};
    coordinator.send(order);
    coordinator.expect<AttemptStarted>();
    worker.close_parent();
    CHECK(coordinator.expect<AttemptFinished>().outcome == Outcome::lost);
    CHECK(worker.wait() == 0);  // without an acknowledgement
  }
  WorkerProcess worker(folder.path(), coordinator.access_path());
  const WorkerHello hello = coordinator.expect<WorkerHello>();
  REQUIRE(hello.held.size() == 1);
  CHECK(hello.held[0].finished);
  coordinator.send(WorkerWelcome{2, 100, 5'000});
  CHECK(coordinator.expect<AttemptFinished>().outcome == Outcome::lost);
}

TEST_CASE("loopback: a coordinator that starts anew finds the stage running") {
  TempFolder folder;
  auto coordinator = std::make_unique<FakeCoordinator>(folder.path());
  WorkerProcess worker(folder.path(), coordinator->access_path());
  coordinator->expect<WorkerHello>();
  coordinator->send(WorkerWelcome{1, 100, 5'000});
  const AttemptRef ref = make_ref(3, "soak", 1);
  AssignAttempt order = make_order(ref);
  order.command = {"sh", "-c", "while [ ! -e $NIGHTSHIFT_STATE/go ]; do sleep 0.05; done"};
  coordinator->send(order);
  const AttemptStarted started = coordinator->expect<AttemptStarted>();
  coordinator->restart();
  const WorkerHello hello = coordinator->expect<WorkerHello>();
  REQUIRE(hello.held.size() == 1);
  CHECK_FALSE(hello.held[0].finished);
  coordinator->send(WorkerWelcome{2, 100, 5'000});
  CHECK(coordinator->expect<AttemptStarted>().pid == started.pid);
  write_text(folder.path() + "/root/attempts/3/soak/1/state/go", "");
  CHECK(coordinator->expect<AttemptFinished>().outcome == Outcome::ok);
}

TEST_CASE("loopback: a second worker on the same root, and a missing access file, are refused") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  WorkerProcess worker(folder.path(), coordinator.access_path());
  coordinator.expect<WorkerHello>();
  CHECK(WorkerProcess(folder.path(), coordinator.access_path()).wait() == 1);
  CHECK(WorkerProcess(folder.path() + "/x", folder.path() + "/no-access").wait() == 1);
}
