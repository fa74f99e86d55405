// Core, reactor and store in one: runs handlers, commits what they changed as one transaction, then
// hands out the messages. Knows the Store interface; must not know sockets.
//
//   engine.open(now);
//   auto job = engine.run(now, [&](Turn& turn) { return on_submit(turn, submission); });
//   ... more handlers: they share the next commit (group commit) ...
//   auto sends = engine.flush(now);      // replies to people, too, leave only after this is ok
//
// When a commit fails, what the handlers did is forgotten: the engine loads the store again under a
// new server epoch (the commit may have been written after all), and gives the error back. Workers
// learn of the epoch from the answer to their next heartbeat and report again. While loading fails,
// too, the engine is not healthy: run() must not be called; call open() again after a while.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/reactor.h"
#include "coordinator/store.h"

namespace nightshift {

class Engine {
 public:
  Engine(Store& store, ReactorOptions options);

  // Loads the store and starts a new epoch.
  Status open(Now now);
  // The store's upkeep, when there is nothing else to do.
  Status rest() { return healthy_ ? store_.rest() : Status(); }
  bool healthy() const { return healthy_; }

  const Core& core() const { return core_; }
  const ReactorOptions& options() const { return options_; }
  // What open() found wrong but could live with, one line each; for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

  template <typename Handler>
  auto run(Now now, Handler&& handler) {
    Turn turn{core_, options_, now, effects_};
    return std::forward<Handler>(handler)(turn);
  }
  // Schedules if asked, commits, and gives the messages to send. Nothing to do costs nothing.
  Result<std::vector<Send>> flush(Now now);
  bool has_work() const {
    return !effects_.changes.empty() || !effects_.sends.empty() || effects_.schedule;
  }

 private:
  Store& store_;
  ReactorOptions options_;
  Core core_;
  Effects effects_;
  std::vector<std::string> warnings_;
  bool healthy_ = false;
};

}  // namespace nightshift
