// One supervisor serves many stages: nothing of one may reach the next.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tests/worker/support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

// As ScriptRun::start, in a folder and with an environment of its own.
void next_stage(ScriptRun& run, const std::string& folder, std::vector<std::string> variables,
                const std::string& script) {
  const UniqueFd log(
      ::open((folder + "/log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  variables.push_back("PATH=/usr/bin:/bin");
  auto started =
      StageProcess::start(run.family, {{"sh", "-c", script}, variables, folder, log.get()});
  REQUIRE(started.ok());
  run.events.clear();
  run.process = std::move(*started);
}

// The mask behind `name`, without 32 and 33: these are the C library's own, which hands them on.
unsigned long long signals_in(const std::string& log, const std::string& name) {
  const auto at = log.find(name);
  REQUIRE(at != std::string::npos);
  return std::stoull(log.substr(at + name.size(), 16), nullptr, 16) & ~0x180000000ULL;
}

}  // namespace

TEST_CASE(
    "supervisor: the next stage has none of the last one's variables, folder, log or signals") {
  TempFolder one;
  TempFolder two;
  ScriptRun run(one.path());
  next_stage(run, one.path(), {"SECRET=1"}, "umask 077; trap '' TERM USR1; echo first");
  REQUIRE(run.run_until_empty());
  const pid_t supervisor = run.process->supervisor();
  next_stage(run, two.path(), {"OTHER=2"},
             "pwd; env | grep -c SECRET; umask; ls /proc/self/fd | tr '\\n' ' '; echo; "
             "grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\n\\t '; echo");
  REQUIRE(run.run_until_empty());
  CHECK(run.process->supervisor() == supervisor);
  CHECK(read_text(one.path() + "/log") == "first\n");
  const std::string log = read_text(two.path() + "/log");
  CHECK(log.starts_with(two.path() + "\n0\n"));
  // 3 is the folder that ls reads; 4 the report.
  CHECK(log.find("0 1 2 3 4 \n") != std::string::npos);
  CHECK(signals_in(log, "SigBlk:") == 0);
  CHECK(signals_in(log, "SigIgn:") == 0);
}

TEST_CASE("supervisor: what the worker ignores and blocks is not ignored by a stage") {
  TempFolder folder;
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const auto hup_before = ::signal(SIGHUP, SIG_IGN);
  ScriptRun run(folder.path());
  run.start("grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\n\\t '");
  REQUIRE(run.run_until_empty());
  ::signal(SIGPIPE, before);
  ::signal(SIGHUP, hup_before);
  const std::string log = read_text(folder.path() + "/log");
  CHECK(signals_in(log, "SigBlk:") == 0);
  CHECK(signals_in(log, "SigIgn:") == 0);
}

TEST_CASE("supervisor: after a command that could not run it serves the next stage") {
  TempFolder folder;
  ScriptRun run(folder.path());
  auto started = StageProcess::start(run.family, {{"/no/such"}, {}, folder.path(), 2});
  REQUIRE(started.ok());
  run.process = std::move(*started);
  REQUIRE(run.run_until_empty());
  const pid_t supervisor = run.process->supervisor();
  next_stage(run, folder.path(), {}, "exit 3");
  REQUIRE(run.run_until_empty());
  CHECK(run.process->supervisor() == supervisor);
  CHECK(run.find<ProcessExited>()->exit_code == 3);
}

TEST_CASE("supervisor: after a tree that had to be killed it serves the next stage, whole grace") {
  TempFolder folder;
  ScriptRun run(folder.path());
  next_stage(run, folder.path(), {}, "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/pid") > 0; }));
  run.process->stop(0);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->signal == SIGKILL);
  next_stage(run, folder.path(), {},
             "trap 'sleep 0.3; exit 7' TERM; echo $$ > again; while :; do sleep 0.05; done");
  REQUIRE(eventually([&] { return pid_in(folder.path() + "/again") > 0; }));
  run.process->stop(20'000);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->exit_code == 7);
}

TEST_CASE("supervisor: one that waits ignores SIGTERM; one that was killed is replaced") {
  TempFolder folder;
  ScriptRun run(folder.path());
  next_stage(run, folder.path(), {}, "exit 0");
  REQUIRE(run.run_until_empty());
  const pid_t first = run.process->supervisor();
  ::kill(first, SIGTERM);
  next_stage(run, folder.path(), {}, "exit 0");
  REQUIRE(run.run_until_empty());
  CHECK(run.process->supervisor() == first);
  CHECK(run.find<ProcessExited>()->exit_code == 0);
  ::kill(first, SIGKILL);
  REQUIRE(eventually([&] { return is_gone(first); }));
  next_stage(run, folder.path(), {}, "exit 0");
  REQUIRE(run.run_until_empty());
  CHECK(run.process->supervisor() != first);
  CHECK(run.find<ProcessExited>()->exit_code == 0);
  CHECK_FALSE(read_process(first));  // reaped, not a zombie
}

TEST_CASE("supervisor: stages at the same time have one each, and both are kept") {
  TempFolder one;
  TempFolder two;
  ScriptRun first(one.path());
  next_stage(first, one.path(), {}, "read line < /dev/null; sleep 0.2");
  const UniqueFd log(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  auto second = StageProcess::start(first.family, {{"/bin/true"}, {}, two.path(), log.get()});
  REQUIRE(second.ok());
  CHECK(first.family.busy() == 2);
  REQUIRE(first.run_until_empty());
  REQUIRE(eventually([&] {
    (void)(*second)->poll_events();
    return (*second)->is_empty();
  }));
  CHECK(first.family.busy() == 0);
  CHECK(first.family.idle() == 2);
}
