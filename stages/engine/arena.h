// Where each value of a graph lies in one block of memory. Knows graphs and bytes only.
#pragma once

#include <cstddef>
#include <vector>

#include "stages/engine/graph.h"

namespace nightshift {

// The largest step that the engine will run.
struct StepShape {
  int rows = 0;  // token rows
  int logit_rows = 0;
  int experts = 0;
  int experts_per_token = 1;
};

struct ArenaPlan {
  std::vector<std::size_t> offsets;  // by value id, 64-byte aligned
  std::size_t bytes = 0;
};

int rows_of(const GraphValue& value, const StepShape& shape);

// First fit by lifetime: two values share memory when no op needs both. With `keep_all` every value
// has memory of its own (for observers that look at a value after the step).
ArenaPlan plan_arena(const Graph& graph, const StepShape& largest, bool keep_all = false);

}  // namespace nightshift
