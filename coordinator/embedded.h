// A private coordinator and one local worker as child processes, for `run` and `resume` where no
// coordinator runs. Knows processes and the state folder; must not know jobs or messages beyond the
// ping that says the coordinator is ready.
//
// The children are the same programs that run as services, found beside this one. Each holds the
// reading end of a pipe whose writing end is ours: when we go, however we go, they end. They have
// process groups of their own, so that Ctrl-C reaches us alone. What they write is in HOME/logs/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/client.h"
#include "coordinator/home.h"
#include "schema/result.h"

namespace nightshift {

struct EmbeddedOptions {
  int slots = 1;
  std::string stage_program;              // empty: nightshift-stage beside this program
  std::string worker_name = "local";
  std::int64_t ready_ms_max = 20'000;     // for the coordinator's first answer
  std::int64_t stop_ms_max = 25'000;      // the worker ends its stages in this time
  int worker_restarts_max = 5;
  int coordinator_restarts_max = 3;
};

// "/usr/bin/nightshift-worker" for "nightshift-worker": beside /proc/self/exe.
Result<std::string> program_beside(const std::string& name);

class EmbeddedPair {
 public:
  // Returns when the coordinator answers and the worker is started.
  static Result<std::unique_ptr<EmbeddedPair>> start(const Home& home, EmbeddedOptions options);
  ~EmbeddedPair();                        // stop()
  EmbeddedPair(const EmbeddedPair&) = delete;
  EmbeddedPair& operator=(const EmbeddedPair&) = delete;

  // Call it several times a second. Starts a child that has died again, with a growing pause, and
  // says so in the lines; an error when one dies too often. Stages go on while the coordinator is
  // away, and report to the next one.
  Result<std::vector<std::string>> tend(std::int64_t mono_ms);

  // The worker first: it ends its stages and reports them while the coordinator still listens.
  void stop();

 private:
  struct Child {
    std::string name;                     // for people, and of the log
    std::vector<std::string> command;
    pid_t pid = -1;
    int pipe_fd = -1;                     // the writing end
    int restarts = 0;
    int restarts_max = 0;
    std::int64_t restart_mono_ms = 0;     // when it is dead
  };

  EmbeddedPair(Home home, EmbeddedOptions options);
  Status make_commands();
  Status spawn(Child& child);
  Status wait_until_ready();
  Status tend_child(Child& child, std::int64_t mono_ms, std::vector<std::string>& lines);
  // True when it has ended (or never ran); `how` says how, when it was found only now.
  bool reap(Child& child, std::string* how = nullptr);
  void end_child(Child& child, std::int64_t wait_ms);
  std::string log_of(const Child& child) const;

  Home home_;
  EmbeddedOptions options_;
  Child coordinator_;
  Child worker_;
};

}  // namespace nightshift
