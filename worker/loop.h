// Glue: feeds the agent with what sockets, processes, disks and the clock say, and does what it
// answers. Holds no rules of its own. One thread; the background threads do what may block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schema/access.h"
#include "schema/result.h"
#include "worker/agent.h"
#include "worker/attempt_store.h"
#include "worker/background.h"
#include "worker/log_bound.h"
#include "worker/process.h"
#include "worker/socket.h"

namespace nightshift {

struct LoopOptions {
  Access access;
  std::string root;
  std::string temp;           // empty: ROOT/tmp
  std::string stage_program;  // of the built-in kinds
  std::string supervisor_program = "/proc/self/exe";
  int parent_fd = -1;  // its end means that the parent is gone
  std::int64_t probe_interval_ms = 1'000;
  std::int64_t log_limit_bytes = log_limit_bytes_default;  // of each attempt's log; 0: none
  AgentOptions agent;
};

class Loop {
 public:
  explicit Loop(LoopOptions options);
  ~Loop();

  // Takes the root, ends what an earlier worker left running there, finds its unreported results.
  Status open();
  // Until SIGTERM, SIGINT, the parent's end or the coordinator's order; the exit status.
  int run();

 private:
  struct Running {
    std::unique_ptr<StageProcess> process;
    std::string log_path;
    std::string temp;
    std::optional<std::int64_t> oom_kills_before;
    std::shared_ptr<LogBound> log_bound;  // touched by punch_ alone
  };
  struct DoAction;
  struct OnEvent;

  Status end_leftovers();
  void turn();
  void wait();
  void on_sockets();
  void on_processes();
  void on_signals();
  void on_parent();
  void probe();
  void bound_logs();
  void bound(std::vector<std::pair<AttemptRef, std::shared_ptr<LogBound>>> logs);
  void do_actions();
  void start_stage(const AssignAttempt& order);
  void start_process(const AssignAttempt& order, PreparedAttempt& prepared);
  std::vector<std::string> command_of(const AssignAttempt& order) const;

  LoopOptions options_;
  std::shared_ptr<AttemptStore> store_;  // shared with the background threads
  ProcessFamily family_;
  CoordinatorSocket socket_;
  BackgroundThread disk_;  // folders and renames
  BackgroundThread seal_;  // hashes: minutes for a big checkpoint
  BackgroundThread look_;  // probes and log requests
  BackgroundThread punch_;  // the middle of long logs
  std::optional<Agent> agent_;
  std::map<AttemptRef, Running> running_;
  UniqueFd signals_;
  UniqueFd parent_;
  bool over_ = false;

  bool looking_ = false;  // a probe is under way
  std::int64_t look_begun_ms_ = 0;
  std::int64_t next_look_ms_ = 0;
  bool look_silent_ = false;
  bool bounding_ = false;
  std::int64_t next_bound_ms_ = 0;
  bool bound_unsupported_said_ = false;
};

}  // namespace nightshift
