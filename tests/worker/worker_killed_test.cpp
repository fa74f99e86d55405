// A worker that is killed with SIGKILL leaves nothing running. A forked child plays the worker.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/worker/loopback_support.h"
#include "worker/process_tree.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

const char* const stage_with_family =
    "sh -c 'setsid sh -c \"trap \\\"\\\" TERM HUP; echo \\$\\$ > $FOLDER/grandchild; "
    "while :; do sleep 0.1; done\" &' \n"
    "while [ ! -s $FOLDER/grandchild ]; do sleep 0.02; done\n"
    "trap '' TERM; echo $$ > $FOLDER/stage; while :; do sleep 0.1; done";

pid_t fork_worker(const std::string& folder) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ScriptRun run(folder);
  run.start(stage_with_family);
  write_text(folder + "/supervisor", std::to_string(run.process->supervisor()));
  for (;;) ::pause();
}

}  // namespace

TEST_CASE("worker killed: nothing of the stage's tree survives, and the supervisor goes too") {
  TempFolder folder;
  const pid_t worker = fork_worker(folder.path());
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/stage") > 0; }));
  const pid_t stage = pid_in(folder.path() + "/stage");
  const pid_t grandchild = pid_in(folder.path() + "/grandchild");
  const pid_t supervisor = pid_in(folder.path() + "/supervisor");
  CHECK_FALSE(is_gone(grandchild));
  ::kill(worker, SIGKILL);
  ::waitpid(worker, nullptr, 0);
  CHECK(eventually([&] { return is_gone(stage) && is_gone(grandchild) && is_gone(supervisor); }));
  for (const pid_t pid : {stage, grandchild, supervisor}) {
    if (!is_gone(pid)) ::kill(pid, SIGKILL);
  }
}

TEST_CASE("worker killed: a supervisor that waits for a stage goes too") {
  TempFolder folder;
  const pid_t worker = ::fork();
  if (worker == 0) {
    ScriptRun run(folder.path());
    run.start("exit 0");
    if (run.run_until_empty() && run.family.idle() == 1) {
      write_text(folder.path() + "/supervisor", std::to_string(run.process->supervisor()));
    }
    for (;;) ::pause();
  }
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/supervisor") > 0; }));
  const pid_t supervisor = pid_in(folder.path() + "/supervisor");
  CHECK_FALSE(is_gone(supervisor));
  ::kill(worker, SIGKILL);
  ::waitpid(worker, nullptr, 0);
  CHECK(eventually([&] { return is_gone(supervisor); }));
}

TEST_CASE("worker and supervisor killed at once: what escaped is found by its environment") {
  TempFolder folder;
  const std::string marker = folder.path() + "/attempts/";
  const pid_t worker = ::fork();
  if (worker == 0) {
    ::setenv("NIGHTSHIFT_OUT", (marker + "3/quantize/1/out").c_str(), 1);
    // The environment that exec is given is what /proc shows.
    ::execl("/bin/sh", "sh", "-c", "setsid sleep 61 & echo $! > $0/pid; sleep 62",
            folder.path().c_str(), nullptr);
    ::_exit(127);
  }
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/pid") > 0; }));
  auto found = processes_with_environment("NIGHTSHIFT_OUT", marker);
  CHECK(found.size() >= 2);
  CHECK(processes_with_environment("NIGHTSHIFT_OUT", folder.path() + "/other/").empty());
  CHECK(eventually([&] {
    found = processes_with_environment("NIGHTSHIFT_OUT", marker);
    for (const ProcessInfo& process : found) signal_process(process, SIGKILL);
    ::waitpid(worker, nullptr, WNOHANG);
    return found.empty();
  }));
}

TEST_CASE("worker killed at any moment of a stage's life: nothing is left after the next start") {
  const unsigned seed = static_cast<unsigned>(::getpid());
  std::srand(seed);
  CAPTURE(seed);
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  const std::string attempts = folder.path() + "/root/attempts/";
  for (int attempt = 1; attempt <= 6; ++attempt) {
    WorkerProcess worker(folder.path(), coordinator.access_path());
    const WorkerHello hello = coordinator.expect<WorkerHello>();
    CHECK(processes_with_environment("NIGHTSHIFT_OUT", attempts).empty());
    coordinator.send(WorkerWelcome{1, 50, 5'000});
    for (const HeldAttempt& held : hello.held) {
      CHECK(held.finished);  // what ran has been lost; what ended is kept
      CHECK(coordinator.expect<AttemptFinished>().outcome == Outcome::ok);
      coordinator.send(AttemptAcknowledged{held.ref, false});
    }
    AssignAttempt order = make_order(make_ref(3, "soak", attempt));
    order.command = {"sh", "-c",
                     "echo x >> $NIGHTSHIFT_STATE/steps; trap '' TERM; setsid sleep 67 & "
                     "sleep 0.1; echo w > $NIGHTSHIFT_OUT/w; kill -9 $!"};
    coordinator.send(order);
    const int wait_us = std::rand() % 300'000;
    CAPTURE(wait_us);
    ::usleep(static_cast<useconds_t>(wait_us));
    worker.signal(SIGKILL);
    worker.wait();
  }
  WorkerProcess worker(folder.path(), coordinator.access_path());
  coordinator.expect<WorkerHello>();
  CHECK(processes_with_environment("NIGHTSHIFT_OUT", attempts).empty());
}
