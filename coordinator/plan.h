// The DAG of a job as pure bookkeeping: who needs whom, what a change of one stage means for the
// others. Knows specs and states only; the reactor acts on the answers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "schema/job_spec.h"
#include "schema/stage_state.h"

namespace nightshift {

// Edges by index into JobSpec::stages, which are in an order in which needs come first.
struct Graph {
  std::vector<std::vector<std::uint32_t>> needs;
  std::vector<std::vector<std::uint32_t>> dependents;
  std::unordered_map<std::string, std::uint32_t> index;   // by name
};

// The spec has been checked (job_spec_from_json); needs that do not exist are left out.
Graph make_graph(const JobSpec& spec);

// Everything that needs `stage`, directly or not, in plan order; without `stage` itself.
std::vector<std::uint32_t> descendants(const Graph& graph, std::uint32_t stage);
// Everything that `stage` needs, directly or not, in plan order; without `stage` itself.
std::vector<std::uint32_t> ancestors(const Graph& graph, std::uint32_t stage);

using StateCounts = std::array<std::int32_t, all_stage_states.size()>;

// active while a stage can still move; then failed before cancelled before done.
JobState job_state_of(const StateCounts& counts);

}  // namespace nightshift
