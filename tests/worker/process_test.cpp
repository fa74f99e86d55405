// Real processes under a real supervisor.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "schema/outcome.h"
#include "tests/worker/support.h"
#include "worker/clock.h"

using namespace nightshift;
using namespace nightshift::test;

TEST_CASE("process: exit codes and signals come through, and their classes") {
  struct Row {
    const char* script;
    int code;
    int signal;
    Outcome outcome;
  };
  for (const Row& row : {Row{"exit 0", 0, 0, Outcome::ok}, Row{"exit 3", 3, 0, Outcome::red_line},
                         Row{"exit 4", 4, 0, Outcome::error}, Row{"exit 5", 5, 0, Outcome::oom},
                         Row{"exit 6", 6, 0, Outcome::disk}, Row{"exit 1", 1, 0, Outcome::crash},
                         Row{"kill -SEGV $$", -1, SIGSEGV, Outcome::crash},
                         Row{"kill -KILL $$", -1, SIGKILL, Outcome::crash}}) {
    CAPTURE(row.script);
    TempFolder folder;
    ScriptRun run(folder.path());
    run.start(row.script);
    REQUIRE(run.run_until_empty());
    const auto* exit = run.find<ProcessExited>();
    REQUIRE(exit != nullptr);
    CHECK(exit->exit_code == row.code);
    CHECK(exit->signal == row.signal);
    CHECK((exit->signal != 0 ? outcome_of_signal(exit->signal, false)
                             : outcome_of_exit(exit->exit_code)) == row.outcome);
    CHECK(std::holds_alternative<ProcessTreeEmpty>(run.events.back()));
    CHECK(run.family.busy() == 0);
    CHECK(run.family.idle() == 1);  // it waits for the next stage
  }
}

TEST_CASE("process: a command that cannot run is told with its reason") {
  TempFolder folder;
  ScriptRun run(folder.path());
  StageCommand command{{"no-such-program-here"}, {"PATH=/usr/bin"}, folder.path(), 2};
  auto started = StageProcess::start(run.family, command);
  REQUIRE(started.ok());
  run.process = std::move(*started);
  REQUIRE(run.run_until_empty());
  REQUIRE(run.find<ProcessNotStarted>() != nullptr);
  CHECK(run.find<ProcessNotStarted>()->error.line() ==
        "no-such-program-here: cannot run the command: No such file or directory");
  CHECK(run.find<ProcessExited>() == nullptr);
}

TEST_CASE("process: a command with a NUL or without words is refused before anything starts") {
  ProcessFamily family(worker_program());
  CHECK_FALSE(StageProcess::start(family, {{}, {}, "/", 2}).ok());
  CHECK_FALSE(StageProcess::start(family, {{std::string("a\0b", 3)}, {}, "/", 2}).ok());
  CHECK(family.busy() + family.idle() == 0);
}

TEST_CASE("process: stdout and stderr go to the log; only 0, 1, 2 and the report are open") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("echo out; echo err >&2; cat <&0; ls /proc/self/fd | tr '\\n' ' '");
  REQUIRE(run.run_until_empty());
  const std::string log = read_text(folder.path() + "/log");
  CHECK(log.starts_with("out\nerr\n"));
  // ls itself has one more, for the folder it reads.
  CHECK(log.find("0 1 2 3 4") != std::string::npos);
  CHECK(log.find(" 5") == std::string::npos);
}

TEST_CASE("process: report lines, malformed and huge ones and \\r among them") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(
      "r=$NIGHTSHIFT_REPORT_FD\n"
      "printf '{\"progress\":{\"done\":1}}\\nnot json\\n' >&$r\n"
      "head -c 300000 /dev/zero | tr '\\0' x >&$r; echo >&$r\n"
      "printf 'with return\\r\\n\\n' >&$r\n"
      "printf 'no newline at the end' >&$r\n");
  REQUIRE(run.run_until_empty());
  CHECK(run.report_lines() == std::vector<std::string>{"{\"progress\":{\"done\":1}}", "not json",
                                                       "with return", "no newline at the end"});
  CHECK(run.process->report_lines_dropped() == 1);
}

TEST_CASE("process: 20,000 report lines written as fast as it can all come through, in order") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("seq 20000 >&$NIGHTSHIFT_REPORT_FD");
  REQUIRE(run.run_until_empty());
  const auto lines = run.report_lines();
  REQUIRE(lines.size() == 20'000);
  CHECK(lines.front() == "1");
  CHECK(lines.back() == "20000");
}

TEST_CASE("process: stop lets the stage save its state within the grace") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(
      "trap 'echo saved > $FOLDER/saved; exit 7' TERM; echo $$ > $FOLDER/pid; "
      "while :; do sleep 0.05; done");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/pid") > 0; }));
  run.process->stop(5'000);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->exit_code == 7);
  CHECK(read_text(folder.path() + "/saved") == "saved\n");
}

TEST_CASE("process: a stopped (SIGSTOP) stage is ended by SIGTERM") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("echo $$ > $FOLDER/pid; kill -STOP $$; sleep 60");
  REQUIRE(eventually([&] {
    const auto process = read_process(pid_in(folder.path() + "/pid"));
    return process && process->state == 'T';
  }));
  run.process->stop(60'000);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->signal == SIGTERM);
}

TEST_CASE("process: a stopped stage that ignores SIGTERM gets SIGKILL after the grace") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("trap '' TERM; echo $$ > $FOLDER/pid; kill -STOP $$; while :; do sleep 1; done");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/pid") > 0; }));
  const std::int64_t begun = monotonic_ms();
  run.process->stop(200);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->signal == SIGKILL);
  CHECK(monotonic_ms() - begun >= 200);
  CHECK(monotonic_ms() - begun < 2'000);
}

// The kind of GaTech-RL2/EgoVerse#682, ray#31451, pytorch#110065: what calls setsid, ignores
// SIGTERM and loses its parent keeps the device's memory.
static const char* const runaway =
    "sh -c 'setsid sh -c \"trap \\\"\\\" TERM; echo \\$\\$ > $FOLDER/grandchild; "
    "while :; do sleep 0.1; done\" &' \n"
    "while [ ! -s $FOLDER/grandchild ]; do sleep 0.02; done\n";

TEST_CASE("process: a grandchild that escaped is gone before the tree is called empty") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(std::string(runaway) + "sleep 60");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/grandchild") > 0; }));
  run.process->stop(100);
  REQUIRE(run.run_until_empty());
  CHECK(is_gone(pid_in(folder.path() + "/grandchild")));
}

TEST_CASE("process: a stage that ends well but leaves a process behind: ended, named, then empty") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(std::string(runaway) + "exit 0");
  REQUIRE(eventually([&] {
    run.poll();
    return run.find<ProcessExited>() != nullptr;
  }));
  const pid_t grandchild = pid_in(folder.path() + "/grandchild");
  CHECK_FALSE(run.process->is_empty());  // it lives: not finished
  CHECK_FALSE(is_gone(grandchild));
  REQUIRE(run.run_until_empty());
  CHECK(is_gone(grandchild));
  CHECK(run.find<ProcessExited>()->exit_code == 0);
  REQUIRE(run.find<ProcessNote>() != nullptr);
  CHECK(run.find<ProcessNote>()->text.find(std::to_string(grandchild)) != std::string::npos);
}

TEST_CASE("process: a supervisor killed from outside takes nothing with it that stays") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(std::string(runaway) + "echo $$ > $FOLDER/stage; sleep 60");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/stage") > 0; }));
  ::kill(run.process->supervisor(), SIGKILL);
  REQUIRE(run.run_until_empty());
  CHECK(is_gone(pid_in(folder.path() + "/stage")));
  CHECK(is_gone(pid_in(folder.path() + "/grandchild")));
  CHECK(run.find<ProcessExited>()->signal == SIGKILL);
  CHECK(run.family.busy() + run.family.idle() == 0);
}

TEST_CASE("process: many children that fork on while they are being killed are all ended") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start(
      "trap '' TERM; for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; while :; do "
      "sleep 0.01; done) & done; echo $$ > $FOLDER/pid; wait");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/pid") > 0; }));
  run.process->stop(0);
  REQUIRE(run.run_until_empty());
  CHECK(is_gone(pid_in(folder.path() + "/pid")));
}

TEST_CASE("process: signal_process does not hit a process that only has the same pid") {
  const auto self = read_process(::getpid());
  REQUIRE(self);
  ProcessInfo other = *self;
  other.start_ticks += 1;
  CHECK(signal_process(other, SIGKILL) == Signalled::gone);
  CHECK(signal_process(*self, 0) == Signalled::sent);
}
