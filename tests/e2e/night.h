// A night of real processes in a folder of its own: job file, state folder, commands, kills. For
// end-to-end tests; finds the programs in $NIGHTSHIFT_BIN.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "schema/json.h"

namespace nightshift::testing {

struct CommandResult {
  int exit_code = -1;
  std::string out;  // stdout and stderr, as they came
};

class Night {
 public:
  // Makes a temporary folder with a small job on K3-nano: all six stages, little data.
  // `retries`: of the job file's `retry.max`.
  explicit Night(int retries);
  // Ends what this night started, by process id, and removes the folder.
  ~Night();
  Night(const Night&) = delete;
  Night& operator=(const Night&) = delete;

  const std::string& folder() const { return folder_; }
  std::string home() const { return folder_ + "/home"; }
  std::string job_file() const { return folder_ + "/job.yaml"; }

  // `nightshift --home HOME ARGS...`, to its end.
  CommandResult nightshift(std::vector<std::string> arguments);
  // The same in the background; its output goes to FOLDER/NAME.out.
  pid_t start(const std::string& name, std::vector<std::string> arguments);
  pid_t start_program(const std::string& name, const std::string& program,
                      std::vector<std::string> arguments);
  // Its exit code (128 + signal when killed); fails the test after `seconds`.
  int wait(pid_t pid, double seconds);
  std::string output(const std::string& name) const;

  // `status JOB --json`, null while nobody answers.
  Json status(const std::string& job = "1");
  // The stage's entry of the first job; null when there is none yet.
  Json stage(const std::string& name);
  // Polls until `stage` is in `state`, or fails the test.
  void wait_for(const std::string& stage, const std::string& state, double seconds);

  // Process ids: of the stage that runs now, of the local worker, of the coordinator; -1: none.
  pid_t stage_pid() const;
  pid_t worker_pid() const;
  pid_t coordinator_pid() const;

  // attempts/1/STAGE/N/log of every attempt -> hash of its content.
  std::vector<std::pair<std::string, std::string>> logs() const;

 private:
  std::string folder_;
  std::vector<pid_t> started_;
};

// The process ids whose environment or command line holds `text`.
std::vector<pid_t> processes_with(const std::string& text, const std::string& program);

}  // namespace nightshift::testing
