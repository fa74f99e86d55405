// What stages do that nobody expects: pipes closed early, rubbish reported, forks without end.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/outcome.h"
#include "tests/worker/loopback_support.h"
#include "worker/probes.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

// Runs one order to its end on a real worker.
AttemptFinished finished(const std::vector<std::string>& command) {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  WorkerProcess worker(folder.path(), coordinator.access_path());
  coordinator.expect<WorkerHello>();
  coordinator.send(WorkerWelcome{1, 100, 5'000});
  AssignAttempt order = make_order(make_ref(3, "soak", 1));
  order.command = command;
  coordinator.send(order);
  return coordinator.expect<AttemptFinished>();
}

}  // namespace

// Each generation leaves its session and ends as soon as the next one runs: whoever looks at the
// list of processes is always one behind. 200 of them, so that a failure ends too.
TEST_CASE("process edges: a stage that forks in a loop while it is killed") {
  TempFolder folder;
  write_text(folder.path() + "/chain",
             "trap '' TERM\n"
             "echo $$ >> $FOLDER/pids\n"
             "[ $1 -lt 200 ] || exit 0\n"
             "setsid sh $FOLDER/chain $(($1 + 1)) &\n"
             "sleep 0.005\n");
  ScriptRun run(folder.path());
  run.start("trap '' TERM; sh $FOLDER/chain 0; sleep 60");
  const std::string pids = folder.path() + "/pids";
  REQUIRE(eventually([&] { return read_text(pids).size() > 20; }));
  run.process->stop(0);
  REQUIRE(run.run_until_empty());
  const std::string text = read_text(pids);
  std::size_t generations = 0;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    CHECK(is_gone(std::atoi(text.c_str() + at)));
    ++generations;
  }
  CHECK(generations < 200);  // it was ended, it did not end by itself
  ::usleep(100'000);
  CHECK(read_text(pids) == text);  // nobody was left to add a line
}

TEST_CASE("process edges: the report pipe closed early is no end, and no work for the worker") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("exec 4>&-; sleep 0.3; echo later; exit 3");
  REQUIRE(eventually([&] {
    run.poll();
    return run.process->report_fd() < 0;
  }));
  CHECK(run.find<ProcessExited>() == nullptr);
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->exit_code == 3);
  CHECK(read_text(folder.path() + "/log") == "later\n");
}

TEST_CASE("process edges: 10 MB without a newline, NULs and invalid UTF-8 on the report pipe") {
  const AttemptFinished result =
      finished({"sh", "-c",
                "r=$NIGHTSHIFT_REPORT_FD; head -c 10000000 /dev/zero | tr '\\0' x >&$r; echo >&$r; "
                "head -c 3000 /dev/zero >&$r; echo >&$r; printf "
                "'\\377\\376\\n{\"phase\":\"\\300\"}\\n' >&$r; "
                "echo '{\"metric\":{\"name\":\"ppl\",\"value\":7.5,\"unit\":\"\"}}' >&$r; "
                "echo w > $NIGHTSHIFT_OUT/w"});
  CHECK(result.outcome == Outcome::ok);
  REQUIRE(result.metrics.size() == 1);
  CHECK(result.metrics[0].value == 7.5);
  CHECK_FALSE(result.notes.empty());  // what could not be read is told
}

TEST_CASE("process edges: a grandchild that holds the log open is ended; the log is at rest then") {
  TempFolder folder;
  ScriptRun run(folder.path());
  run.start("setsid sh -c 'trap \"\" TERM; while :; do echo still here; done' & echo done; exit 0");
  REQUIRE(run.run_until_empty());
  CHECK(run.find<ProcessExited>()->exit_code == 0);
  const auto size = file_bytes(folder.path() + "/log");
  ::usleep(50'000);
  CHECK(file_bytes(folder.path() + "/log") == size);
}

TEST_CASE("process edges: exit code 255 is a crash with its code") {
  const AttemptFinished result = finished({"sh", "-c", "exit 255"});
  CHECK(result.outcome == Outcome::crash);
  CHECK(result.exit_code == 255);
  CHECK(result.reason == "exit code 255");
}

TEST_CASE("process edges: what cannot be executed is said clearly, and is never tried again") {
  TempFolder folder;
  const std::string plain = folder.path() + "/plain";
  write_text(plain, "echo hello\n");
  const std::string orphan = folder.path() + "/orphan";
  write_text(orphan, "#!/no/such/interpreter\n");
  REQUIRE(::chmod(orphan.c_str(), 0755) == 0);
  struct Row {
    std::string program;
    const char* said;
  };
  for (const Row& row :
       {Row{plain,
            ": cannot run the command: Permission denied (make it executable (chmod +x), or write "
            "its interpreter before it)"},
        Row{folder.path(), ": cannot run the command: it is a folder (name a program in it)"},
        Row{orphan,
            ": cannot run the command: No such file or directory (the file is there, the "
            "interpreter that its first line names is not)"}}) {
    const AttemptFinished result = finished({row.program});
    CHECK(result.reason == row.program + row.said);
    CHECK(result.outcome == Outcome::error);
    CHECK_FALSE(is_retryable(result.outcome));
  }
}
