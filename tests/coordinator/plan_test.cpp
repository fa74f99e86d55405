#include "coordinator/plan.h"

#include "tests/coordinator/reactor_world.h"

using namespace nightshift;
using nightshift::testing::dag;

namespace {

StateCounts counts_of(const std::vector<StageState>& states) {
  StateCounts counts{};
  for (StageState state : states) counts[static_cast<std::size_t>(state)] += 1;
  return counts;
}

}  // namespace


TEST_CASE("plan: descendants and ancestors of a diamond") {
  const Graph graph = make_graph(dag("a -> b\na -> c\nb -> d\nc -> d\nd -> e"));
  CHECK(descendants(graph, 0) == std::vector<std::uint32_t>{1, 2, 3, 4});
  CHECK(descendants(graph, 1) == std::vector<std::uint32_t>{3, 4});
  CHECK(ancestors(graph, 3) == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(ancestors(graph, 0).empty());
}

TEST_CASE("plan: the job follows its stages") {
  using S = StageState;
  CHECK(job_state_of(counts_of({S::done, S::reused})) == JobState::done);
  CHECK(job_state_of(counts_of({S::failed, S::running})) == JobState::active);
  CHECK(job_state_of(counts_of({S::failed, S::blocked, S::done})) == JobState::failed);
  CHECK(job_state_of(counts_of({S::failed, S::cancelled})) == JobState::failed);
  CHECK(job_state_of(counts_of({S::done, S::cancelled, S::blocked})) == JobState::cancelled);
  CHECK(job_state_of(counts_of({S::done, S::waiting})) == JobState::active);
}

TEST_CASE("plan: edges go both ways and a need named twice counts once") {
  JobSpec spec = dag("a -> b\na -> c\nb -> d\nc -> d");
  spec.stages[3].needs.push_back("b");
  const Graph graph = make_graph(spec);
  CHECK(graph.index.at("d") == 3);
  CHECK(graph.needs[3] == std::vector<std::uint32_t>{1, 2});
  CHECK(graph.dependents[0] == std::vector<std::uint32_t>{1, 2});
}
