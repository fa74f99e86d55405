#include "coordinator/views.h"

#include <fmt/format.h>

namespace nightshift {

namespace {

AttemptView view_of(const AttemptRecord& record) {
  AttemptView view;
  view.attempt = record.number.value;
  view.worker = record.worker.value;
  view.outcome = record.outcome;
  view.reason = record.reason;
  view.started_ms = record.started_ms;
  view.ended_ms = record.ended_ms;
  view.elapsed_ms = record.elapsed_ms;
  view.log_tail = record.log_tail;
  return view;
}

StageView brief_view(const Job& job, std::uint32_t index) {
  const Stage& stage = job.stages[index];
  StageView view;
  view.name = job.spec.stages[index].name;
  view.kind = job.spec.stages[index].kind;
  view.state = stage.state;
  view.attempt = stage.attempt.value;
  view.needs = job.spec.stages[index].needs;
  view.group = job.spec.stages[index].group;
  if (!stage.attempts.empty()) view.worker = stage.attempts.back().worker.value;
  return view;
}

std::string joined(const std::vector<std::string>& reasons) {
  return fmt::format("{}", fmt::join(reasons, "; "));
}

StageView full_view(const Core& core, const SchedulerOptions& options, const Job& job,
                    std::uint32_t index, Now now) {
  const StageAt at{job.id, index};
  const Stage& stage = job.stages[index];
  StageView view = brief_view(job, index);
  view.waiting_reason = joined(explain_stage(core, options, at, now).reasons);
  view.reuse_reason = stage.reuse_reason;
  for (const AttemptRecord& record : stage.attempts) view.attempts.push_back(view_of(record));
  const auto live = core.live.find(at);
  if (live != core.live.end()) {
    view.pulse = live->second.pulse;
    if (live->second.pulse) view.pulse_age_ms = now.mono_ms - live->second.pulse_mono_ms;
    if (live->second.started_mono_ms >= 0) {
      view.attempts.back().elapsed_ms = now.mono_ms - live->second.started_mono_ms;
    }
    if (live->second.suspected) {
      view.waiting_reason = "its worker has not reported since the coordinator started";
    }
    if (live->second.finished) view.waiting_reason = "its checkpoint is being committed";
  }
  if (stage.result) {
    view.metrics = stage.result->metrics;
    view.red_lines = stage.result->red_lines;
    view.notes = stage.result->notes;
    if (stage.result->checkpoint && has_result(stage.state)) {
      view.checkpoint_path = stage.result->checkpoint->info.path;
      view.checkpoint_digest = stage.result->checkpoint->info.digest;
      view.checkpoint_bytes = stage.result->checkpoint->info.bytes;
    }
  }
  return view;
}

JobView head_of(const Job& job) {
  JobView view;
  view.job = job.id;
  view.name = job.spec.name;
  view.user = job.user;
  view.state = job.state;
  view.model_path = job.spec.model_path;
  view.source_path = job.spec.source_path;
  view.submitted_ms = job.submitted_ms;
  view.ended_ms = job.ended_ms;
  return view;
}

}  // namespace

std::optional<JobView> make_job_view(const Core& core, const SchedulerOptions& options, JobId id,
                                     Now now) {
  const Job* job = find_job(core, id);
  if (job == nullptr) return std::nullopt;
  JobView view = head_of(*job);
  for (std::uint32_t i = 0; i < job->stages.size(); ++i) {
    view.stages.push_back(full_view(core, options, *job, i, now));
  }
  for (const EventRow& event : job->events) view.events.push_back({event.at_ms, event.text});
  return view;
}

std::vector<JobView> make_job_list(const Core& core) {
  std::vector<JobView> list;
  for (const auto& [id, job] : core.jobs) {
    JobView view = head_of(job);
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) view.stages.push_back(brief_view(job, i));
    list.push_back(std::move(view));
  }
  return list;
}

WorkerView make_worker_view(const Worker& worker, std::int64_t silent_after_ms, Now now) {
  WorkerView view;
  view.name = worker.name.value;
  view.host = worker.host;
  view.pid = worker.pid;
  view.last_word_ms = now.mono_ms - worker.last_word_mono_ms;
  view.state = worker.state == WorkerState::lost ? "lost"
               : worker.state == WorkerState::unknown || view.last_word_ms > silent_after_ms
                   ? "silent"
                   : "online";
  view.resources = worker.resources;
  for (const auto& [ref, slot] : worker.held) {
    view.running.push_back(to_string(ref) + (slot.stopping ? " (stopping)" : ""));
  }
  view.disk_free_bytes = worker.disk_free_bytes;
  return view;
}

std::vector<WorkerView> make_worker_views(const Core& core, std::int64_t silent_after_ms, Now now) {
  std::vector<WorkerView> views;
  for (const auto& [name, worker] : core.workers) {
    views.push_back(make_worker_view(worker, silent_after_ms, now));
  }
  return views;
}

}  // namespace nightshift
