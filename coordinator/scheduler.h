// Which ready stage goes to which worker, and why the others wait. Pure: (core, options, now) ->
// assignments; the reactor carries them out.
//
// Order: priority, then the user with the fewest active stages (a tie goes to whose turn is longest
// ago), then submit order, then plan order. A stage that fits no worker now lets smaller ones pass,
// but not for ever: once it has waited reserve_after_ms, the worker that comes nearest to it takes
// nothing of the same or a lower priority until it fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/core.h"

namespace nightshift {

// Where the wall clock stands in a job's night window.
struct NightWindow {
  bool open = true;
  std::int64_t opens_in_ms = 0;       // closed
  std::int64_t closes_in_ms = -1;     // open; -1: no deadline
};

struct SchedulerOptions {
  std::int64_t reserve_after_ms = 30'000;
  // Empty: windows are ignored. Knows time zones, which the core does not.
  std::function<NightWindow(const NightSpec&, std::int64_t wall_ms)> night;
};

struct Assignment {
  StageAt stage;
  WorkerId worker;
  std::vector<int> gpu_devices;       // of the worker
};
std::vector<Assignment> schedule(const Core& core, const SchedulerOptions& options, Now now);

// Why `worker` cannot take the stage now ("no free slot", "needs gpu 1, has 0 free of 0",
// "label a100 missing", "has 3/soak#1 for itself"); empty when it can.
std::string refusal(const Worker& worker, const ResourceSpec& wish);
// Whether it could if nothing else ran there.
bool could_ever_fit(const Worker& worker, const ResourceSpec& wish);

struct Explanation {
  std::string stage;
  StageState state = StageState::waiting;
  // Why it does not run now: "waits for quantize (running)", "back-off until in 12 s",
  // "worker box1: no free slot", "no worker is online". Empty for active and final stages.
  std::vector<std::string> reasons;
};
Explanation explain_stage(const Core& core, const SchedulerOptions& options, StageAt at, Now now);
std::vector<Explanation> explain(const Core& core, const SchedulerOptions& options, JobId job,
                                 Now now);

}  // namespace nightshift
