// Nights whose processes are killed in the middle: nothing finished runs again, no log is
// overwritten, and `resume` brings the job to its end.
#include <doctest/doctest.h>
#include <signal.h>

#include <map>

#include "tests/e2e/night.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

const std::vector<std::string> stage_names = {"baseline", "calibrate", "quantize",
                                              "fuse",     "evaluate",  "soak"};

// The attempts of every stage that is done, by name.
std::map<std::string, int> attempts_of_done(Night& night) {
  std::map<std::string, int> attempts;
  const Json status = night.status();
  if (status.is_null()) return attempts;
  for (const Json& stage : status.at("stages")) {
    if (stage.at("state") == "done") attempts[stage.at("name")] = stage.at("attempt");
  }
  return attempts;
}

// After `resume`: all six done, those done before not run again, their logs untouched.
void check_finished(Night& night, const std::map<std::string, int>& done_before,
                    const std::vector<std::pair<std::string, std::string>>& logs_before) {
  const auto logs = night.logs();
  const std::map<std::string, std::string> now(logs.begin(), logs.end());
  for (const auto& [path, hash] : logs_before) {
    REQUIRE_MESSAGE(now.count(path) == 1, path << " is gone");
    CHECK_MESSAGE(now.at(path) == hash, path << " was overwritten");
  }
  // Nobody answers `status` once the night is over: the report has the attempts.
  const CommandResult report = night.nightshift({"resume", "1"});
  CHECK(report.exit_code == 0);
  const auto pid = night.start("service", {"coordinator"});
  night.wait_for("soak", "done", 30);
  const auto done = attempts_of_done(night);
  CHECK(done.size() == stage_names.size());
  for (const auto& [stage, attempt] : done_before) {
    CHECK_MESSAGE(done.at(stage) == attempt, stage << " ran again");
  }
  ::kill(pid, SIGTERM);
  CHECK(night.wait(pid, 30) == 0);
}

void resume_and_check(Night& night, const std::map<std::string, int>& done_before) {
  const auto logs_before = night.logs();
  const CommandResult resume = night.nightshift({"resume", "1"});
  INFO(resume.out);
  CHECK(resume.exit_code == 0);
  check_finished(night, done_before, logs_before);
}

}  // namespace

TEST_CASE("e2e: kill -9 of a stage or of its worker; resume finishes, nothing runs twice") {
  for (const bool is_worker : {false, true}) {
    CAPTURE(is_worker);
    Night night(0);
    const pid_t run = night.start("run", {"run", night.job_file()});
    night.wait_for(is_worker ? "calibrate" : "quantize", "running", 120);
    const auto done_before = attempts_of_done(night);
    const pid_t victim = is_worker ? night.worker_pid() : night.stage_pid();
    REQUIRE(victim > 0);
    ::kill(victim, SIGKILL);
    CHECK(night.wait(run, 120) == 1);
    CHECK(night.output("run").find("nightshift resume 1") != std::string::npos);
    CHECK(night.stage_pid() == -1);  // a stage dies with its worker
    resume_and_check(night, done_before);
  }
}

TEST_CASE("e2e: kill -9 of the coordinator and of run; resume finishes") {
  Night night(0);
  const pid_t run = night.start("run", {"run", night.job_file()});
  night.wait_for("quantize", "running", 120);
  const auto done_before = attempts_of_done(night);
  const pid_t coordinator = night.coordinator_pid();
  REQUIRE(coordinator > 0);
  ::kill(coordinator, SIGKILL);
  ::kill(run, SIGKILL);
  CHECK(night.wait(run, 10) == 128 + SIGKILL);
  // The worker notices that its parent is gone, ends its stage and itself.
  for (int n = 0; n < 200 && (night.worker_pid() > 0 || night.stage_pid() > 0); ++n) {
    ::usleep(100'000);
  }
  CHECK(night.worker_pid() == -1);
  CHECK(night.stage_pid() == -1);
  resume_and_check(night, done_before);
}

TEST_CASE("e2e: kill -9 of the coordinator alone; run starts another, the stage goes on") {
  Night night(0);
  const pid_t run = night.start("run", {"run", night.job_file()});
  night.wait_for("baseline", "running", 60);
  const pid_t coordinator = night.coordinator_pid();
  REQUIRE(coordinator > 0);
  ::kill(coordinator, SIGKILL);
  const int code = night.wait(run, 240);
  INFO(night.output("run"));
  CHECK(code == 0);
  check_finished(night, {{"baseline", 1}, {"calibrate", 1}, {"quantize", 1}}, {});
}
