// Which checkpoints go when a worker's disk is over its quota. Pure: knows the core; must not know
// disks or messages (reactor_collect.cpp carries it out).
//
// Kept always: what an active job has or has taken from another job, what somebody pinned, and of
// each job that is over its baseline and its last checkpoints (those that nothing was built on).
// The rest goes until the quota holds: first what a later run of the same stage has replaced, then
// what lies between baseline and last, oldest first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core.h"

namespace nightshift {

struct Collection {
  std::vector<AttemptRef> refs;  // in the order in which they go
  std::int64_t held_bytes = 0;   // by committed checkpoints before that
  std::int64_t left_bytes = 0;   // and after it
};

// For one worker; empty refs when it has no quota or is inside.
Collection plan_collection(const Core& core, const Worker& worker);

}  // namespace nightshift
