#include "coordinator/collect.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace nightshift {

namespace {

struct Candidate {
  AttemptRef ref;
  bool is_replaced = false;
  std::int64_t ended_ms = 0;
  std::int64_t bytes = 0;
};

bool is_built_on(const Job& job, std::uint32_t index) {
  const auto& dependents = job.graph.dependents[index];
  return std::any_of(dependents.begin(), dependents.end(), [&](std::uint32_t dependent) {
    return has_result(job.stages[dependent].state);
  });
}

std::set<AttemptRef> kept_always(const Core& core) {
  std::set<AttemptRef> kept;
  for (const auto& [id, job] : core.jobs) {
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
      const Stage& stage = job.stages[i];
      if (!stage.result || !stage.result->checkpoint) continue;
      if (job.state == JobState::active || stage.pinned || job.spec.stages[i].kind == "baseline" ||
          !is_built_on(job, i)) {
        kept.insert(stage.result->from);
      }
    }
  }
  return kept;
}

bool is_replaced(const Job& job, std::uint32_t index, AttemptNumber number) {
  const Stage& stage = job.stages[index];
  const AttemptRef ref{job.id, job.spec.stages[index].name, number};
  return !stage.result || stage.result->from != ref;
}

}  // namespace

Collection plan_collection(const Core& core, const Worker& worker) {
  Collection plan;
  std::vector<Candidate> all;
  for (const auto& [id, job] : core.jobs) {
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
      for (const AttemptRecord& record : job.stages[i].attempts) {
        if (record.checkpoint_bytes < 0 || record.collected) continue;
        if (record.worker != worker.name) continue;
        plan.held_bytes += record.checkpoint_bytes;
        all.push_back({{id, job.spec.stages[i].name, record.number},
                       is_replaced(job, i, record.number),
                       record.ended_ms,
                       record.checkpoint_bytes});
      }
    }
  }
  plan.left_bytes = plan.held_bytes;
  const std::int64_t quota = worker.resources.disk_quota_bytes;
  if (quota <= 0 || plan.held_bytes <= quota) return plan;
  const std::set<AttemptRef> kept = kept_always(core);
  std::erase_if(all, [&](const Candidate& candidate) { return kept.contains(candidate.ref); });
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(!a.is_replaced, a.ended_ms, a.ref) <
           std::tuple(!b.is_replaced, b.ended_ms, b.ref);
  });
  for (const Candidate& candidate : all) {
    if (plan.left_bytes <= quota) break;
    plan.left_bytes -= candidate.bytes;
    plan.refs.push_back(candidate.ref);
  }
  return plan;
}

}  // namespace nightshift
