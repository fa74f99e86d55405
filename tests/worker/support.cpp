#include "tests/worker/support.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "worker/clock.h"
#include "worker/process_tree.h"

namespace nightshift::test {

TempFolder::TempFolder() : path_("/tmp/nightshift-test-XXXXXX") {
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
}
TempFolder::~TempFolder() {
  (void)remove_tree(path_);
}

AttemptRef make_ref(std::int64_t job, const std::string& stage, std::int32_t attempt) {
  return {JobId{job}, stage, AttemptNumber{attempt}};
}

AssignAttempt make_order(const AttemptRef& ref, std::int64_t epoch) {
  AssignAttempt order;
  order.ref = ref;
  order.server_epoch = epoch;
  order.order.job = ref.job.value;
  order.order.job_name = "night";
  order.order.stage = ref.stage;
  order.order.kind = "run";
  order.order.attempt = ref.attempt.value;
  order.order.model_path = "/models/k3";
  return order;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool eventually(const std::function<bool()>& condition) {
  const std::int64_t until = monotonic_ms() + 30'000;
  while (!condition()) {
    if (monotonic_ms() > until) return false;
    ::usleep(5'000);
  }
  return true;
}

bool is_gone(pid_t pid) {
  const auto process = read_process(pid);
  return !process || process->state == 'Z';
}

pid_t pid_in(const std::string& path) {
  return std::atoi(read_text(path).c_str());
}

std::string worker_program() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return parent_folder(std::string(path, static_cast<std::size_t>(std::max<ssize_t>(size, 0)))) +
         "/nightshift-worker";
}

ScriptRun::ScriptRun(const std::string& folder_) : folder(folder_), family(worker_program()) {}

void ScriptRun::start(const std::string& script) {
  const UniqueFd log(
      ::open((folder + "/log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  StageCommand command;
  command.arguments = {"sh", "-c", script};
  command.environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "FOLDER=" + folder};
  command.folder = folder;
  command.log_fd = log.get();
  auto started = StageProcess::start(family, command);
  REQUIRE_MESSAGE(started.ok(), (started.ok() ? "" : started.error().line()));
  process = std::move(*started);
}

void ScriptRun::poll() {
  for (ProcessEvent& event : process->poll_events()) events.push_back(std::move(event));
}

bool ScriptRun::run_until_empty() {
  return eventually([this] {
    poll();
    return process->is_empty();
  });
}

std::vector<std::string> ScriptRun::report_lines() const {
  std::vector<std::string> lines;
  for (const ProcessEvent& event : events) {
    if (const auto* line = std::get_if<ProcessReportLine>(&event)) lines.push_back(line->line);
  }
  return lines;
}

}  // namespace nightshift::test
