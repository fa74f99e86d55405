// Service mode and the command line, with real processes.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/e2e/night.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A job of shell stages: quick, and as many as the test likes.
void write_shell_job(const Night& night, const std::string& stages) {
  std::ofstream(night.folder() + "/shell.yaml")
      << "name: shell\nmodel: {path: " << std::filesystem::absolute("jobs/models/k3-nano").string()
      << "}\nretry: {max: 0}\nstages:\n"
      << stages;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// The file that a run names last: a row for each of the six stages, every number there.
void check_report(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto report = parse_json(text, path);
  REQUIRE(report.ok());
  REQUIRE(report->at("checkpoints").size() == 6);
  for (const Json& row : report->at("checkpoints")) {
    CAPTURE(row.at("stage"));
    for (const char* number : {"throughput_tok_s", "ttft_ms", "tpot_ms", "peak_memory_bytes",
                               "size_bytes", "token_match", "ops", "launches"}) {
      CHECK_MESSAGE(row.at(number).get<double>() > 0, number);
    }
    CHECK(row.at("accuracy").size() == 4);    // three groups and all
    CHECK(row.at("perplexity").size() == 2);  // one set and all
  }
  REQUIRE(report->at("red_lines").size() == 4);
  for (const Json& line : report->at("red_lines")) CHECK(line.at("pass") == true);
}

}  // namespace

TEST_CASE("e2e: coordinator and two workers by hand, a job from a third terminal") {
  Night night(0);
  const pid_t coordinator = night.start("coordinator", {"coordinator"});
  for (int n = 0; n < 200 && !std::filesystem::exists(night.home() + "/access.json"); ++n) {
    ::usleep(50'000);
  }
  std::vector<pid_t> workers;
  for (const char* name : {"box1", "box2"}) {
    workers.push_back(night.start_program(name, "nightshift-worker",
                                          {"--access", night.home() + "/access.json", "--root",
                                           night.folder() + "/" + name, "--name", name}));
  }
  // Two sides of a diamond run at the same time only when both workers take one.
  write_shell_job(night,
                  "  first: {kind: run, command: 'true'}\n"
                  "  left: {kind: run, needs: first, command: 'sleep 2'}\n"
                  "  right: {kind: run, needs: first, command: 'sleep 2'}\n"
                  "  last: {kind: run, needs: [left, right], command: 'echo the end'}\n");
  const CommandResult submit = night.nightshift({"submit", night.folder() + "/shell.yaml"});
  INFO(submit.out);
  CHECK(submit.exit_code == 0);
  night.wait_for("last", "done", 60);
  CHECK(night.stage("left").at("worker") != night.stage("right").at("worker"));
  const CommandResult logs = night.nightshift({"logs", "1", "last"});
  CHECK(holds(logs.out, "the end"));
  const CommandResult list = night.nightshift({"workers"});
  CHECK(holds(list.out, "box1"));
  CHECK(holds(list.out, "box2"));
  for (pid_t worker : workers) ::kill(worker, SIGTERM);
  for (pid_t worker : workers) CHECK(night.wait(worker, 30) == 0);
  ::kill(coordinator, SIGTERM);
  CHECK(night.wait(coordinator, 30) == 0);
}

TEST_CASE("e2e: cancel ends the processes of a stage and says so") {
  Night night(0);
  write_shell_job(night, "  long: {kind: run, command: 'sleep 1000'}\n");
  const pid_t run = night.start("run", {"run", night.folder() + "/shell.yaml"});
  night.wait_for("long", "running", 30);
  CHECK(night.nightshift({"cancel", "1"}).exit_code == 0);
  CHECK(night.wait(run, 60) != 0);
  CHECK(processes_with(night.home(), "sleep").empty());
}

TEST_CASE("e2e: what a stage says when it fails reaches the person, and it is not tried again") {
  Night night(2);
  std::ofstream(night.folder() + "/calibration.jsonl")
      << "{\"group\":\"qa\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\nno json\n";
  const pid_t run = night.start("run", {"run", night.job_file()});
  CHECK(night.wait(run, 200) == 1);
  CHECK(holds(night.output("run"), "calibration.jsonl:2"));
  const CommandResult resume = night.nightshift({"resume", "1", "--plan"});
  INFO(resume.out);
  CHECK(holds(resume.out, "calibrate"));
}

TEST_CASE("e2e: check says every mistake of a job file, offline, with line and column") {
  Night night(0);
  std::ofstream(night.folder() + "/bad.yaml")
      << "name: x\nmodel: {path: nowhere}\nstages:\n  baseline: {}\n"
         "  qunatize: {needs: baseline}\n  fuse: {needs: fuse}\n";
  const CommandResult check = night.nightshift({"check", night.folder() + "/bad.yaml"});
  INFO(check.out);
  CHECK(check.exit_code == 1);
  CHECK(holds(check.out, "bad.yaml:5:"));
  CHECK(holds(check.out, "quantize"));  // did you mean
  CHECK(holds(check.out, "fuse -> fuse"));
  CHECK(!std::filesystem::exists(night.home() + "/nightshift.db"));
}

TEST_CASE("e2e: a night leaves report.json without a blank or a zero; a second one reuses it all") {
  Night night(0);
  const CommandResult first = night.nightshift({"run", night.job_file()});
  INFO(first.out);
  REQUIRE(first.exit_code == 0);
  check_report(last_line(first.out));
  const CommandResult second = night.nightshift({"run", night.job_file()});
  INFO(second.out);
  CHECK(second.exit_code == 0);
  CHECK(holds(second.out, "reused"));
  CHECK(night.logs().size() == 6);  // nothing ran
  check_report(last_line(second.out));
}
