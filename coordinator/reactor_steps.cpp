#include "coordinator/reactor_steps.h"

#include <fmt/format.h>

#include <algorithm>

namespace nightshift {

namespace {

int ended_with(const Stage& stage, Outcome outcome) {
  return stage.ended[static_cast<std::size_t>(outcome)];
}

const RetrySpec& retry_of(const Core& core, StageAt at) { return spec_at(core, at).retry; }

// 30 s, 60 s, 120 s, ... for the first, second, third end of this class.
std::int64_t backoff_ms(const RetrySpec& retry, int ends, std::int64_t max_ms) {
  const std::int64_t limit = std::max(max_ms, retry.backoff_ms);
  std::int64_t pause = retry.backoff_ms;
  for (int i = 1; i < ends && pause < limit; ++i) pause *= 2;
  return std::min(pause, limit);
}

AttemptRow attempt_row(const AttemptRef& ref, const AttemptRecord& record) {
  AttemptRow row;
  row.ref = ref;
  row.worker = record.worker.value;
  row.device_class = record.device_class;
  row.assigned_ms = record.assigned_ms;
  row.started_ms = record.started_ms;
  row.ended_ms = record.ended_ms;
  row.elapsed_ms = record.elapsed_ms;
  row.progress_done = record.progress_done;
  row.outcome = to_string(*record.outcome);
  row.reason = record.reason;
  row.log_path = record.log_path;
  row.log_tail = record.log_tail;
  row.excused = record.excused;
  return row;
}

std::int64_t elapsed_of(const LiveAttempt& live, const AttemptEnd& end, Now now) {
  if (end.report != nullptr && end.report->elapsed_ms > 0) return end.report->elapsed_ms;
  if (live.started_mono_ms < 0) return 0;
  return now.mono_ms - live.started_mono_ms;
}

void tell_end(Turn& turn, StageAt at, const char* what, const AttemptRecord& record) {
  tell(turn, at.job,
       fmt::format("event={} stage={} attempt={} worker={} ms={} {} {}", what,
                   spec_at(turn.core, at).name, record.number.value, record.worker.value,
                   record.elapsed_ms, field("outcome", to_string(*record.outcome)),
                   field("reason", record.reason)));
}

}  // namespace

std::string field(std::string_view key, std::string_view value) {
  std::string clean;
  for (char c : value) clean += (c == '\n' || c == '\r') ? ' ' : c == '"' ? '\'' : c;
  const bool bare = !clean.empty() && clean.find(' ') == std::string::npos;
  return bare ? fmt::format("{}={}", key, clean) : fmt::format("{}=\"{}\"", key, clean);
}

void tell(Turn& turn, JobId job, std::string line) {
  EventRow row{job, turn.now.wall_ms, std::move(line)};
  if (Job* found = find_job(turn.core, job)) {
    found->events.push_back(row);
    if (found->events.size() > events_kept_max) found->events.pop_front();
  }
  turn.effects.changes.push_back(EventAdded{std::move(row)});
}

StageRow stage_row(const Core& core, StageAt at, Now now) {
  const Stage& stage = stage_at(core, at);
  StageRow row;
  row.stage = ref_of(core, at);
  row.state = to_string(stage.state);
  row.attempt = stage.attempt;
  row.base_attempt = stage.base_attempt;
  if (is_active(stage.state) && !stage.attempts.empty()) {
    row.worker = stage.attempts.back().worker.value;
  }
  row.key = stage.key;
  row.retry_reason = stage.retry_reason;
  row.reuse_reason = stage.reuse_reason;
  row.no_reuse = stage.no_reuse;
  row.pinned = stage.pinned;
  if (stage.not_before_mono_ms > now.mono_ms) {
    row.not_before_ms = now.wall_ms + (stage.not_before_mono_ms - now.mono_ms);
  }
  if (stage.result) row.result = stage.result->from;
  return row;
}

bool move_stage(Turn& turn, StageAt at, StageEvent event, AttemptNumber attempt_before) {
  const StageState before = stage_at(turn.core, at).state;
  const auto after = next_state(before, event);
  if (!after) return false;
  set_stage_state(turn.core, at, *after, turn.now.mono_ms);
  turn.effects.changes.push_back(
      StageMoved{before, attempt_before, stage_row(turn.core, at, turn.now)});
  if (*after == StageState::ready) turn.effects.schedule = true;
  return true;
}

bool move_stage(Turn& turn, StageAt at, StageEvent event) {
  return move_stage(turn, at, event, stage_at(turn.core, at).attempt);
}

void make_ready(Turn& turn, StageAt at) {
  if (take_equal_result(turn, at)) {
    settle_dependents(turn, at);
  } else {
    move_stage(turn, at, StageEvent::unblock);
  }
}

void settle_dependents(Turn& turn, StageAt at) {
  const Job& job = turn.core.jobs.at(at.job);
  if (!has_result(job.stages[at.index].state)) {
    for (std::uint32_t index : descendants(job.graph, at.index)) {
      if (job.stages[index].state == StageState::waiting) {
        move_stage(turn, {at.job, index}, StageEvent::block);
      }
    }
    return;
  }
  // A chain of reused stages can be long: a list instead of recursion.
  std::vector<std::uint32_t> open = {at.index};
  while (!open.empty()) {
    const std::uint32_t next = open.back();
    open.pop_back();
    for (std::uint32_t index : job.graph.dependents[next]) {
      const Stage& dependent = job.stages[index];
      if (dependent.state != StageState::waiting || dependent.unmet > 0) continue;
      if (take_equal_result(turn, {at.job, index})) {
        open.push_back(index);
      } else {
        move_stage(turn, {at.job, index}, StageEvent::unblock);
      }
    }
  }
}

void update_job_state(Turn& turn, JobId id) {
  Job& job = turn.core.jobs.at(id);
  const JobState state = job_state_of(job.counts);
  if (state == job.state) return;
  const JobState before = job.state;
  job.state = state;
  job.ended_ms = state == JobState::active ? 0 : turn.now.wall_ms;
  turn.effects.changes.push_back(JobMoved{id, before, state, job.ended_ms});
  if (state == JobState::active) return;
  const auto count = [&job](StageState of) { return job.counts[static_cast<std::size_t>(of)]; };
  const std::string summary = fmt::format(
      "{} done, {} reused, {} failed, {} cancelled, {} blocked", count(StageState::done),
      count(StageState::reused), count(StageState::failed), count(StageState::cancelled),
      count(StageState::blocked));
  tell(turn, id, fmt::format("event=job_{} {}", to_string(state), field("stages", summary)));
  std::string text = fmt::format("job {} {}: {} ({})", id.value, job.spec.name, to_string(state),
                                 summary);
  for (std::size_t i = 0; i < job.stages.size(); ++i) {
    const Stage& stage = job.stages[i];
    if (stage.state != StageState::failed || stage.attempts.empty()) continue;
    text += fmt::format("; {} failed: {}: {}", job.spec.stages[i].name,
                        to_string(*stage.attempts.back().outcome), stage.attempts.back().reason);
  }
  if (state != JobState::done) text += fmt::format("; to go on: nightshift resume {}", id.value);
  notify(turn, job, to_string(state), text);
}

void close_attempt(Turn& turn, StageAt at, const AttemptEnd& end, bool keeps_slot) {
  Stage& stage = stage_at(turn.core, at);
  LiveAttempt& live = turn.core.live.at(at);
  AttemptRecord& record = stage.attempts.back();
  record.outcome = end.outcome;
  record.reason = end.reason;
  record.ended_ms = turn.now.wall_ms;
  record.elapsed_ms = elapsed_of(live, end, turn.now);
  if (live.pulse && live.pulse->progress) record.progress_done = live.pulse->progress->done;
  if (end.report != nullptr) record.log_tail = end.report->log_tail;
  record.excused = end.excused;
  if (!end.excused) count_end(stage, end.outcome, record.progress_done);

  AttemptRow row = attempt_row(live.ref, record);
  if (end.report != nullptr) {
    row.peak_memory_bytes = end.report->peak_memory_bytes;
    row.metrics = end.report->metrics;
    row.red_lines = end.report->red_lines;
    row.notes = end.report->notes;
    if (end.outcome == Outcome::ok) row.checkpoint = end.report->checkpoint;
    StageResult result{live.ref, std::nullopt, row.metrics, row.red_lines, row.notes};
    if (row.checkpoint) {
      result.checkpoint = {*row.checkpoint, record.worker, record.device_class};
      record.checkpoint_bytes = row.checkpoint->bytes;
      turn.core.collect_due = true;
    }
    const bool measured = !row.metrics.empty() || !row.red_lines.empty() || !row.notes.empty();
    if (row.checkpoint || measured) stage.result = std::move(result);
  }
  turn.effects.changes.push_back(AttemptEnded{std::move(row)});
  if (!keeps_slot) {
    if (Worker* worker = find_worker(turn.core, live.worker)) release_slot(*worker, live.ref);
  }
  turn.effects.schedule = true;
}

void end_well(Turn& turn, StageAt at, const AttemptFinished& report) {
  Stage& stage = stage_at(turn.core, at);
  close_attempt(turn, at, {Outcome::ok, report.reason, &report});
  stage.reuse_reason.clear();
  move_stage(turn, at, StageEvent::finish);
  turn.core.counters.stages_done += 1;
  tell_end(turn, at, "stage_done", stage.attempts.back());
  settle_dependents(turn, at);
  update_job_state(turn, at.job);
}

void end_badly(Turn& turn, StageAt at, AttemptEnd end) {
  const Job& job = turn.core.jobs.at(at.job);
  Stage& stage = stage_at(turn.core, at);
  // Three losses are nobody's fault and cost no retry: the worker was told to end, the attempt was
  // gone before somebody resumed the job, and an input lies with a worker that is away.
  const bool at_once = stage.excused == stage.attempt;   // somebody waits for it
  const bool excused = end.outcome == Outcome::lost &&
                       (end.excused || end.report != nullptr || at_once);
  end.excused = excused;
  close_attempt(turn, at, end);
  const AttemptRecord& record = stage.attempts.back();
  if (end.outcome == Outcome::lost) turn.core.counters.attempts_lost += 1;

  const RetrySpec& retry = retry_of(turn.core, at);
  const int ends = excused ? 0 : ended_with(stage, end.outcome);
  const bool stalled = stage.stalled_restarts >= turn.options.stalled_restarts_max;
  const std::string said = fmt::format("{}: {}", to_string(end.outcome), end.reason);
  if (is_retryable(end.outcome) && ends <= retry.max && !stalled) {
    const std::int64_t pause =
        excused && at_once ? 0 : backoff_ms(retry, ends, turn.options.backoff_max_ms);
    stage.retry_reason = said;
    stage.not_before_mono_ms = turn.now.mono_ms + pause;
    move_stage(turn, at, StageEvent::retry);
    turn.core.counters.retries += 1;
    tell_end(turn, at, "stage_retry", record);
    notify(turn, job, "retry",
           fmt::format("job {} {}: {} attempt {} ended ({}), {} in {} s", at.job.value,
                       job.spec.name, job.spec.stages[at.index].name, record.number.value, said,
                       excused ? "again" : fmt::format("retry {} of {}", ends, retry.max),
                       pause / 1000));
    return;
  }
  if (stalled && is_retryable(end.outcome)) {
    tell(turn, at.job,
         fmt::format("event=no_progress stage={} restarts={} best={}",
                     job.spec.stages[at.index].name, stage.stalled_restarts, stage.best_progress));
  }
  move_stage(turn, at, StageEvent::fail);
  tell_end(turn, at, "stage_failed", record);
  if (end.outcome == Outcome::red_line) {
    notify(turn, job, "red_line",
           fmt::format("job {} {}: {} crossed a red line: {}", at.job.value, job.spec.name,
                       job.spec.stages[at.index].name, end.reason));
  }
  settle_dependents(turn, at);
  update_job_state(turn, at.job);
}

LiveAttempt* current_attempt(Turn& turn, const WorkerId& worker, const AttemptRef& ref,
                             StageAt* at) {
  const auto found = find_stage(turn.core, ref.stage_ref());
  if (!found) return nullptr;
  const auto live = turn.core.live.find(*found);
  if (live == turn.core.live.end()) return nullptr;
  if (live->second.ref.attempt != ref.attempt || live->second.worker != worker) return nullptr;
  if (at != nullptr) *at = *found;
  return &live->second;
}

void refuse_report(Turn& turn, const WorkerId& worker, const AttemptRef& ref,
                   std::string_view what) {
  turn.core.counters.reports_refused += 1;
  constexpr std::size_t told_max = 10'000;
  auto& told = turn.core.refusals_told;
  if (told.size() >= told_max) told.clear();
  if (!told.insert(fmt::format("{} {} {}", to_string(ref), worker.value, what)).second) return;
  const bool known = turn.core.jobs.contains(ref.job);
  tell(turn, known ? ref.job : JobId{},
       fmt::format("event=report_refused {} attempt={} {} {} why=\"not the current attempt\"",
                   field("stage", ref.stage), ref.attempt.value, field("worker", worker.value),
                   field("report", what)));
}

void stop_zombie(Turn& turn, Worker& worker, const AttemptRef& ref) {
  const auto at = find_stage(turn.core, ref.stage_ref());
  if (!worker.held.contains(ref)) {
    hold_slot(worker, ref, at ? spec_at(turn.core, *at).resources : ResourceSpec{});
  }
  HeldSlot& slot = worker.held.at(ref);
  const std::int64_t told_ago_ms = turn.now.mono_ms - slot.stop_told_mono_ms;
  if (slot.stopping && told_ago_ms < turn.options.heartbeat_ms) return;
  stop_held(turn, worker, slot, {ref, Outcome::cancelled, "not the current attempt"});
}

void stop_held(Turn& turn, const Worker& worker, HeldSlot& slot, StopAttempt stop) {
  if (!slot.stopping) {
    slot.stopping = true;
    slot.stop = std::move(stop);
    slot.stop_since_mono_ms = turn.now.mono_ms;
  }
  slot.stop_told_mono_ms = turn.now.mono_ms;
  send_to(turn, worker, slot.stop);
}

void mark_started(Turn& turn, StageAt at, LiveAttempt& live, const std::string& log_path) {
  live.suspected = false;
  Stage& stage = stage_at(turn.core, at);
  if (stage.state != StageState::assigned) return;
  AttemptRecord& record = stage.attempts.back();
  record.started_ms = turn.now.wall_ms;
  record.log_path = log_path;
  live.started_mono_ms = turn.now.mono_ms;
  turn.effects.changes.push_back(AttemptRan{live.ref, log_path, record.started_ms});
  move_stage(turn, at, StageEvent::start);
}

void notify(Turn& turn, const Job& job, const std::string& event, const std::string& text) {
  for (std::size_t i = 0; i < job.spec.notify.size(); ++i) {
    const auto& on = job.spec.notify[i].on;
    if (std::find(on.begin(), on.end(), event) == on.end()) continue;
    OutboxRow row;
    row.id = fmt::format("{}-{}-{}.{}", job.id.value, event, turn.core.epoch.value,
                         ++turn.core.outbox_ids);
    row.job = job.id;
    row.event = event;
    row.channel = static_cast<int>(i);
    row.text = text;
    row.created_ms = turn.now.wall_ms;
    turn.core.outbox.emplace(row.id, row);
    turn.effects.changes.push_back(OutboxAdded{std::move(row)});
  }
}

}  // namespace nightshift
