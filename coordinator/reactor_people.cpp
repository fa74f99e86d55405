// Handlers of what people ask: submit, cancel, resume; and the assignment of what became ready.
#include <fmt/format.h>

#include "coordinator/content_key.h"
#include "coordinator/reactor_steps.h"
#include "coordinator/resume.h"

namespace nightshift {

namespace {

Job make_job(Turn& turn, const Submission& submission) {
  Job job;
  job.id = {turn.core.last_job.value + 1};
  job.spec = submission.spec;
  job.source_text = submission.source_text;
  job.user = submission.user;
  job.request = submission.request;
  job.submitted_ms = turn.now.wall_ms;
  job.stages.resize(job.spec.stages.size());
  std::vector<std::string> keys = stage_keys(job.spec);
  for (std::size_t i = 0; i < keys.size(); ++i) job.stages[i].key = std::move(keys[i]);
  return job;
}

void wake_roots(Turn& turn, JobId id) {
  const Job& job = turn.core.jobs.at(id);
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    if (job.stages[i].state == StageState::waiting && job.stages[i].unmet == 0) {
      make_ready(turn, {id, i});
    }
  }
}

bool can_cancel(StageState state) { return next_state(state, StageEvent::cancel).has_value(); }

// The stage is cancelled at once; the process is told, and holds its slot until it is gone.
void cancel_stage(Turn& turn, StageAt at, const std::string& by) {
  const Stage& stage = stage_at(turn.core, at);
  if (is_active(stage.state)) {
    const LiveAttempt& live = turn.core.live.at(at);
    const AttemptRef ref = live.ref;
    const WorkerId name = live.worker;
    const std::string reason = "cancelled by " + by;
    close_attempt(turn, at, {Outcome::cancelled, reason, nullptr}, true);
    Worker* worker = find_worker(turn.core, name);
    const auto held = worker ? worker->held.find(ref) : decltype(worker->held.find(ref)){};
    if (worker != nullptr && held != worker->held.end()) {
      stop_held(turn, *worker, held->second, {ref, Outcome::cancelled, reason});
    }
  }
  move_stage(turn, at, StageEvent::cancel);
  tell(turn, at.job, fmt::format("event=stage_cancelled stage={} attempt={} {}",
                                 spec_at(turn.core, at).name, stage.attempt.value,
                                 field("by", by)));
}

// Back to waiting, as if it had not run; attempts keep their numbers, retries count anew.
void reset_stage(Turn& turn, StageAt at, const std::string& reason, bool no_reuse,
                 const std::string& key) {
  Stage& stage = stage_at(turn.core, at);
  if (stage.state == StageState::ready) move_stage(turn, at, StageEvent::cancel);
  const StageState before = stage.state;
  const auto after = before == StageState::waiting ? std::optional(StageState::waiting)
                                                   : next_state(before, StageEvent::reset);
  if (!after) return;
  set_stage_state(turn.core, at, *after, turn.now.mono_ms);   // leaves the index of its old key
  stage.base_attempt = stage.attempt;
  stage.ended = {};
  stage.stalled_restarts = 0;
  stage.best_progress = -1;
  stage.not_before_mono_ms = 0;
  stage.refused_by.clear();
  stage.result.reset();
  stage.reuse_reason.clear();
  stage.no_reuse_reason.clear();
  stage.retry_reason = stage.attempt.value > 0 ? "resumed: " + reason : "";
  stage.no_reuse = no_reuse;
  stage.key = key;
  turn.effects.changes.push_back(
      StageMoved{before, stage.attempt, stage_row(turn.core, at, turn.now)});
}

// What goes on as before goes on at once: no back-off is waited out, and an attempt that has not
// been heard of since the coordinator started is excused if it turns out to be lost.
void hurry_stage(Turn& turn, StageAt at) {
  Stage& stage = stage_at(turn.core, at);
  end_back_off(turn.core, at, turn.now.mono_ms);
  const auto live = turn.core.live.find(at);
  if (live != turn.core.live.end() && live->second.suspected) stage.excused = stage.attempt;
}

// The new job file takes the place of the old one; new stages begin as waiting.
void replace_job_spec(Turn& turn, const ResumeRequest& request) {
  const Graph old_graph = turn.core.jobs.at(request.job).graph;
  replace_spec(turn.core, request.job, *request.spec, turn.now.mono_ms);
  Job& job = turn.core.jobs.at(request.job);
  job.source_text = request.source_text;
  JobSpecReplaced replaced{request.job, to_json_text(*request.spec), request.source_text, {}};
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    if (old_graph.index.contains(job.spec.stages[i].name)) continue;
    replaced.added.push_back(stage_row(turn.core, {request.job, i}, turn.now));
  }
  turn.effects.changes.push_back(std::move(replaced));
}

void assign(Turn& turn, StageAt at, Worker& worker, const std::vector<int>& gpu_devices) {
  Job& job = turn.core.jobs.at(at.job);
  Stage& stage = job.stages[at.index];
  const AttemptNumber before = stage.attempt;
  stage.attempt.value += 1;
  AttemptRecord record;
  record.number = stage.attempt;
  record.worker = worker.name;
  record.device_class = worker.resources.device_class;
  record.assigned_ms = turn.now.wall_ms;
  stage.attempts.push_back(record);

  LiveAttempt live;
  live.ref = attempt_of(turn.core, at);
  live.worker = worker.name;
  live.assigned_mono_ms = turn.now.mono_ms;
  hold_slot(worker, live.ref, job.spec.stages[at.index].resources, gpu_devices);
  turn.effects.changes.push_back(
      AttemptAdded{live.ref, worker.name.value, record.device_class, record.assigned_ms,
                   gpu_devices});
  move_stage(turn, at, StageEvent::assign, before);
  turn.core.live.insert_or_assign(at, std::move(live));
  turn.core.users[job.user].last_turn = ++turn.core.turns;
  send_order(turn, at);
}

}  // namespace

Result<JobId> on_submit(Turn& turn, const Submission& submission) {
  if (!submission.request.empty()) {
    const auto known = turn.core.requests.find(submission.request);
    if (known != turn.core.requests.end()) return known->second;
  }
  if (submission.spec.stages.empty()) {
    return Error{ErrorCode::invalid_argument, "a job needs at least one stage",
                 submission.spec.source_path, "add a stage below `stages:`"};
  }
  const JobId id = add_job(turn.core, make_job(turn, submission), turn.now.mono_ms).id;
  const Job& job = turn.core.jobs.at(id);
  JobAdded added;
  added.row = {id,       job.spec.name,           job.user, job.request, to_string(job.state),
               to_json_text(job.spec), job.source_text, job.submitted_ms, 0};
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    added.stages.push_back(stage_row(turn.core, {id, i}, turn.now));
  }
  turn.effects.changes.push_back(std::move(added));
  tell(turn, id, fmt::format("event=job_submitted {} {} stages={}", field("name", job.spec.name),
                             field("user", job.user), job.stages.size()));
  wake_roots(turn, id);
  update_job_state(turn, id);
  turn.effects.schedule = true;
  return id;
}

Status on_cancel(Turn& turn, JobId id, const std::string& stage, const std::string& by) {
  const Job* job = find_job(turn.core, id);
  if (job == nullptr) {
    return Error{ErrorCode::not_found, fmt::format("there is no job {}", id.value), "", ""};
  }
  std::vector<StageAt> targets;
  if (stage.empty()) {
    if (job->state != JobState::active) {
      return Error{ErrorCode::conflict, fmt::format("job {} is already {}", id.value,
                                                    to_string(job->state)), "", ""};
    }
    for (std::uint32_t i = 0; i < job->stages.size(); ++i) {
      if (can_cancel(job->stages[i].state)) targets.push_back({id, i});
    }
  } else {
    const auto at = find_stage(turn.core, {id, stage});
    if (!at) {
      std::vector<std::string> names;
      for (const StageSpec& spec : job->spec.stages) names.push_back(spec.name);
      const std::string near = did_you_mean(stage, names);
      return Error{ErrorCode::not_found, fmt::format("job {} has no stage {}", id.value, stage), "",
                   near.empty() ? "" : fmt::format("did you mean {}?", near)};
    }
    if (!can_cancel(job->stages[at->index].state)) {
      return Error{ErrorCode::conflict,
                   fmt::format("{} is already {}", stage, to_string(job->stages[at->index].state)),
                   to_string(StageRef{id, stage}), ""};
    }
    targets.push_back(*at);
  }
  for (const StageAt& at : targets) cancel_stage(turn, at, by);
  if (!stage.empty()) settle_dependents(turn, targets.front());
  update_job_state(turn, id);
  turn.effects.schedule = true;
  return {};
}

Result<std::vector<ResumeStep>> on_resume(Turn& turn, const ResumeRequest& request) {
  NS_TRY_ASSIGN(ResumePlan plan, plan_resume(turn.core, request.job, request.spec, request.from,
                                             turn.options.checkpoint_exists));
  if (request.spec) replace_job_spec(turn, request);
  const Job& job = turn.core.jobs.at(request.job);
  std::size_t reruns = 0;
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    const ResumeStep& step = plan.steps[i];
    hurry_stage(turn, {request.job, i});
    if (!step.rerun) continue;
    reruns += 1;
    const Stage& stage = job.stages[i];
    const bool as_before = stage.key == plan.keys[i] && !plan.no_reuse[i];
    const bool untouched = as_before && (stage.state == StageState::waiting ||
                                         (stage.state == StageState::ready && stage.unmet == 0));
    if (!untouched) {
      reset_stage(turn, {request.job, i}, step.reason, plan.no_reuse[i], plan.keys[i]);
    }
  }
  tell(turn, request.job, fmt::format("event=job_resumed again={} kept={} {}", reruns,
                                      job.stages.size() - reruns, field("from", request.from)));
  wake_roots(turn, request.job);
  update_job_state(turn, request.job);
  turn.effects.schedule = true;
  return std::move(plan.steps);
}

void on_schedule(Turn& turn) {
  bool again = true;
  while (again) {
    again = false;
    for (const Assignment& next : schedule(turn.core, turn.options.scheduler, turn.now)) {
      // An equal stage of another job may have ended since this one became ready; and what that
      // leads to may have changed this one.
      if (stage_at(turn.core, next.stage).state != StageState::ready) continue;
      if (take_equal_result(turn, next.stage)) {
        settle_dependents(turn, next.stage);
        update_job_state(turn, next.stage.job);
        again = true;
        continue;
      }
      Worker* worker = find_worker(turn.core, next.worker);
      if (worker != nullptr) assign(turn, next.stage, *worker, next.gpu_devices);
    }
  }
}

}  // namespace nightshift
