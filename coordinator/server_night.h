// Night windows in wall time of a zone. Knows the system's time zones; must not know jobs.
#pragma once

#include <cstdint>

#include "coordinator/scheduler.h"
#include "schema/job_spec.h"

namespace nightshift {

// start and deadline: open from the one to the other, also over midnight; equal: always open.
// deadline alone: always open, closes at the next one. start alone: open for 12 hours from it.
// Follows daylight saving: a window of 22:00-07:00 has 8 or 10 hours on the nights of the change.
// An unknown zone counts as the system's own. One thread only: it sets TZ while it computes.
NightWindow night_window(const NightSpec& night, std::int64_t wall_ms);

}  // namespace nightshift
