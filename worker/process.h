// The worker's handle on one stage process: starts it under its supervisor, reads its report lines,
// ends its tree. Knows processes; must not know messages, folders or the agent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "schema/result.h"
#include "worker/files.h"
#include "worker/line_buffer.h"
#include "worker/process_tree.h"

namespace nightshift {

// What happened since the last call, in order.
struct ProcessStarted {
  pid_t pid = 0;
};
struct ProcessNotStarted {
  Error error;
};  // followed by ProcessTreeEmpty
struct ProcessReportLine {
  std::string line;
};
struct ProcessExited {  // the first process; others may still live
  int exit_code = -1;   // -1: ended by `signal`
  int signal = 0;
};
struct ProcessNote {
  std::string text;
};                           // leftovers, survivors: for people, with pids
struct ProcessTreeEmpty {};  // nothing is left; the last event
using ProcessEvent = std::variant<ProcessStarted, ProcessNotStarted, ProcessReportLine,
                                  ProcessExited, ProcessNote, ProcessTreeEmpty>;

struct StageCommand {
  std::vector<std::string> arguments;    // argv; [0] is searched in the stage's own PATH
  std::vector<std::string> environment;  // "NAME=value"
  std::string folder;                    // working folder
  int log_fd = -1;                       // stdout and stderr; stays the caller's
};

struct IdleSupervisor {
  pid_t pid = 0;
  UniqueFd control;
};

// All supervisors of one worker, busy or waiting for their next stage. The worker is the subreaper
// of last resort: when a supervisor is itself killed, what it held comes here and is ended from
// here.
class ProcessFamily {
 public:
  // `program` is executed with the one argument supervisor::argument.
  explicit ProcessFamily(std::string program = "/proc/self/exe");
  ~ProcessFamily();
  ProcessFamily(const ProcessFamily&) = delete;
  ProcessFamily& operator=(const ProcessFamily&) = delete;
  // One supervisor more that waits, so that the next stage finds it ready.
  Status warm_up();
  // One that waits, else a new one. It may have died meanwhile: then sending to it fails.
  Result<IdleSupervisor> take();
  // It has said that its tree is empty.
  void give_back(IdleSupervisor supervisor);
  std::size_t idle() const { return idle_.size(); }
  std::size_t busy() const { return supervisors_.size() - idle_.size(); }
  // One that shall serve no more: it leaves when its socket ends.
  void end(IdleSupervisor supervisor);
  bool has(pid_t supervisor) const { return supervisors_.contains(supervisor); }
  void remove(pid_t supervisor) { supervisors_.erase(supervisor); }
  // SIGKILL to everything below this process that belongs to no living supervisor; what was there.
  std::vector<ProcessInfo> end_strays() const;

 private:
  std::string program_;
  std::set<pid_t> supervisors_;
  std::vector<IdleSupervisor> idle_;
};

class StageProcess {
 public:
  // The report descriptor's variable is added to the environment. Does not wait for the program.
  static Result<std::unique_ptr<StageProcess>> start(ProcessFamily& family,
                                                     const StageCommand& command);
  // Closing the control socket makes the supervisor end the tree with a short grace.
  ~StageProcess();
  StageProcess(const StageProcess&) = delete;
  StageProcess& operator=(const StageProcess&) = delete;

  // SIGTERM, after the grace SIGKILL; asking again can only shorten the grace.
  void stop(std::int64_t grace_ms);
  // To poll for reading; -1 once closed.
  int control_fd() const { return control_.get(); }
  int report_fd() const { return report_.get(); }
  // Reads what is there without blocking, at most 256 KiB of report lines a call. Call it when a
  // descriptor is readable and about once a second.
  std::vector<ProcessEvent> poll_events();

  pid_t supervisor() const { return supervisor_; }
  bool is_empty() const { return empty_said_; }
  std::int64_t report_lines_dropped() const { return report_lines_.dropped(); }

 private:
  StageProcess(ProcessFamily& family, const StageCommand& command, IdleSupervisor supervisor,
               UniqueFd report);
  void read_control(std::vector<ProcessEvent>& events);
  void read_report(std::vector<ProcessEvent>& events);
  void drain_report(std::vector<ProcessEvent>& events);
  void on_control_line(const std::string& line, std::vector<ProcessEvent>& events);
  void reap_supervisor();
  void on_supervisor_gone(std::vector<ProcessEvent>& events);

  ProcessFamily& family_;
  std::string program_;  // what the stage runs, for messages
  std::string folder_;   // from where
  pid_t supervisor_ = 0;
  UniqueFd control_;
  UniqueFd report_;
  LineBuffer control_lines_{64 * 1024};
  LineBuffer report_lines_;
  bool exited_ = false;  // ProcessExited or ProcessNotStarted was told
  bool empty_ = false;   // known to be empty, perhaps not told yet
  bool empty_said_ = false;
  bool strays_noted_ = false;
};

}  // namespace nightshift
