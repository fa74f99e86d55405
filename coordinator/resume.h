// What resuming a job would run again, and why; nothing is changed here (on_resume does that).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core.h"
#include "schema/job_view.h"
#include "schema/result.h"

namespace nightshift {

struct ResumePlan {
  std::vector<ResumeStep> steps;      // every stage of the (new) spec, in its order
  std::vector<bool> no_reuse;         // parallel: must run, even when an equal result exists
  std::vector<std::string> keys;      // parallel: content keys under the (new) spec
};

// Reasons: "done, key unchanged", "failed: crash: ...", "parameters changed: percentile 99.9 ->
// 99.5", "depends on calibrate, which runs again", "forced by --from", "its checkpoint is gone:
// PATH", "runs now (attempt 2)". Refused: an unknown job or stage, a stage that the new spec lacks,
// a stage that would have to run again while it runs.
Result<ResumePlan> plan_resume(const Core& core, JobId job, const std::optional<JobSpec>& spec,
                               const std::string& from,
                               const std::function<bool(const std::string&)>& checkpoint_exists);

}  // namespace nightshift
