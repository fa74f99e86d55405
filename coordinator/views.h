// Makes what people look at (schema/job_view.h) out of the core. Pure.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/core.h"
#include "coordinator/scheduler.h"
#include "schema/job_view.h"

namespace nightshift {

// nullopt: no such job.
std::optional<JobView> make_job_view(const Core& core, const SchedulerOptions& options, JobId job,
                                     Now now);
// All jobs, oldest first, without events, log tails and reasons: for lists.
std::vector<JobView> make_job_list(const Core& core);
WorkerView make_worker_view(const Worker& worker, std::int64_t silent_after_ms, Now now);
std::vector<WorkerView> make_worker_views(const Core& core, std::int64_t silent_after_ms, Now now);

}  // namespace nightshift
