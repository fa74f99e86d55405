// Rebuilds the core from the rows of the store. Pure. Active stages come back as suspected: until
// the amnesty ends nothing of them counts as lost.
#pragma once

#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/core.h"
#include "coordinator/store.h"

namespace nightshift {

struct Recovered {
  Core core;
  // A job whose rows contradict each other is left alone (Core::quarantined) and named here.
  std::vector<std::string> warnings;
};

Recovered recover_core(StoredState stored, ServerEpoch epoch, std::int64_t amnesty_ms, Now now);

}  // namespace nightshift
