#include "coordinator/plan.h"

#include <algorithm>
#include <utility>

namespace nightshift {

namespace {

std::vector<std::uint32_t> reachable(const std::vector<std::vector<std::uint32_t>>& edges,
                                     std::uint32_t from) {
  std::vector<char> seen(edges.size(), 0);
  std::vector<std::uint32_t> found;
  std::vector<std::uint32_t> open = edges[from];
  while (!open.empty()) {
    const std::uint32_t next = open.back();
    open.pop_back();
    if (seen[next]) continue;
    seen[next] = 1;
    found.push_back(next);
    for (std::uint32_t beyond : edges[next]) {
      if (!seen[beyond]) open.push_back(beyond);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::int32_t count_of(const StateCounts& counts, StageState state) {
  return counts[static_cast<std::size_t>(state)];
}

}  // namespace

Graph make_graph(const JobSpec& spec) {
  Graph graph;
  const std::size_t count = spec.stages.size();
  graph.needs.resize(count);
  graph.dependents.resize(count);
  graph.index.reserve(count);
  std::vector<std::uint32_t> last_dependent(count, UINT32_MAX);  // a need that is named twice
  for (std::uint32_t i = 0; i < count; ++i) {
    for (const std::string& need : spec.stages[i].needs) {
      const auto found = graph.index.find(need);
      if (found == graph.index.end()) continue;
      if (std::exchange(last_dependent[found->second], i) == i) continue;
      graph.needs[i].push_back(found->second);
      graph.dependents[found->second].push_back(i);
    }
    graph.index.emplace(spec.stages[i].name, i);
  }
  return graph;
}

std::vector<std::uint32_t> descendants(const Graph& graph, std::uint32_t stage) {
  return reachable(graph.dependents, stage);
}

std::vector<std::uint32_t> ancestors(const Graph& graph, std::uint32_t stage) {
  return reachable(graph.needs, stage);
}

JobState job_state_of(const StateCounts& counts) {
  for (StageState state : {StageState::waiting, StageState::ready, StageState::assigned,
                           StageState::running}) {
    if (count_of(counts, state) > 0) return JobState::active;
  }
  if (count_of(counts, StageState::failed) > 0) return JobState::failed;
  if (count_of(counts, StageState::cancelled) > 0) return JobState::cancelled;
  return JobState::done;
}

}  // namespace nightshift
