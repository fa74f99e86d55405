#include "coordinator/reactor_engine.h"

#include <utility>

#include "coordinator/recovery.h"

namespace nightshift {

Engine::Engine(Store& store, ReactorOptions options)
    : store_(store), options_(std::move(options)) {}

Status Engine::open(Now now) {
  healthy_ = false;
  effects_ = {};
  NS_TRY_ASSIGN(const ServerEpoch epoch, store_.next_epoch());
  NS_TRY_ASSIGN(StoredState stored, store_.load());
  Recovered recovered = recover_core(std::move(stored), epoch, options_.lease_ms, now);
  core_ = std::move(recovered.core);
  warnings_ = std::move(recovered.warnings);
  effects_.schedule = true;
  healthy_ = true;
  return {};
}

Result<std::vector<Send>> Engine::flush(Now now) {
  if (!healthy_) {
    return Error{ErrorCode::unavailable, "the store could not be loaded", "", "it is tried again"};
  }
  if (effects_.schedule) {
    effects_.schedule = false;
    Turn turn{core_, options_, now, effects_};
    on_schedule(turn);
    effects_.schedule = false;   // what scheduling freed or took has been seen
  }
  if (!effects_.changes.empty()) {
    if (Status applied = store_.apply(effects_.changes); !applied.ok()) {
      const Status reopened = open(now);
      return applied.error();
    }
  }
  Effects done = std::exchange(effects_, {});
  return std::move(done.sends);
}

}  // namespace nightshift
