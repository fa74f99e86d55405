#include "coordinator/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "schema/job_spec.h"

namespace nightshift {

namespace {

// The rows of the store in the order of their keys, so that each finds its own by search and all of
// them by one walk: with 100,000 stages a map of strings would cost more than everything else.
class Rows {
 public:
  using Attempts = std::span<AttemptRow>;

  explicit Rows(StoredState& stored) : stages_(stored.stages), attempts_(stored.attempts) {
    const auto by_stage = [](const StageRow& a, const StageRow& b) { return a.stage < b.stage; };
    const auto by_ref = [](const AttemptRow& a, const AttemptRow& b) { return a.ref < b.ref; };
    if (!std::is_sorted(stages_.begin(), stages_.end(), by_stage)) {
      std::sort(stages_.begin(), stages_.end(), by_stage);
    }
    if (!std::is_sorted(attempts_.begin(), attempts_.end(), by_ref)) {
      std::sort(attempts_.begin(), attempts_.end(), by_ref);
    }
    first_attempt_.reserve(stages_.size() + 1);
    std::size_t at = 0;
    for (const StageRow& stage : stages_) {
      while (at < attempts_.size() && ref_before(attempts_[at], stage.stage)) ++at;
      first_attempt_.push_back(at);
    }
    first_attempt_.push_back(attempts_.size());
  }

  std::span<StageRow> stages_of(JobId job) {
    const auto first = std::partition_point(
        stages_.begin(), stages_.end(), [&](const StageRow& row) { return row.stage.job < job; });
    const auto last = std::partition_point(
        first, stages_.end(), [&](const StageRow& row) { return row.stage.job == job; });
    return {first, last};
  }
  static StageRow* find(std::span<StageRow> of_job, const std::string& name) {
    const auto found = std::partition_point(
        of_job.begin(), of_job.end(), [&](const StageRow& row) { return row.stage.stage < name; });
    return found == of_job.end() || found->stage.stage != name ? nullptr : &*found;
  }
  Attempts attempts_of(const StageRow& row) {
    const auto index = static_cast<std::size_t>(&row - stages_.data());
    std::size_t end = first_attempt_[index];
    while (end < attempts_.size() && attempts_[end].ref.job == row.stage.job &&
           attempts_[end].ref.stage == row.stage.stage) {
      ++end;
    }
    return Attempts(attempts_).subspan(first_attempt_[index], end - first_attempt_[index]);
  }
  AttemptRow* find(const AttemptRef& ref) {
    const auto found = std::partition_point(attempts_.begin(), attempts_.end(),
                                            [&](const AttemptRow& row) { return row.ref < ref; });
    return found == attempts_.end() || found->ref != ref ? nullptr : &*found;
  }

 private:
  static bool ref_before(const AttemptRow& row, const StageRef& stage) {
    return std::tie(row.ref.job, row.ref.stage) < std::tie(stage.job, stage.stage);
  }
  std::vector<StageRow>& stages_;
  std::vector<AttemptRow>& attempts_;
  std::vector<std::size_t> first_attempt_;  // parallel to stages_
};

Error broken(std::string what, const StageRef& where) {
  return {ErrorCode::corrupt, std::move(what), to_string(where), ""};
}

// Takes the long texts with it; make_result needs the rest.
Result<AttemptRecord> make_record(AttemptRow& row) {
  AttemptRecord record;
  record.number = row.ref.attempt;
  record.worker = {row.worker};
  record.device_class = row.device_class;
  record.reason = std::move(row.reason);
  record.log_path = std::move(row.log_path);
  record.log_tail = std::move(row.log_tail);
  record.assigned_ms = row.assigned_ms;
  record.started_ms = row.started_ms;
  record.ended_ms = row.ended_ms;
  record.elapsed_ms = row.elapsed_ms;
  record.progress_done = row.progress_done;
  if (row.checkpoint) record.checkpoint_bytes = row.checkpoint->bytes;
  record.collected = !row.checkpoint_state.empty();
  record.excused = row.excused;
  if (!row.outcome.empty()) {
    record.outcome = outcome_from(row.outcome);
    if (!record.outcome) {
      return broken(fmt::format("unknown outcome '{}' of attempt {}", row.outcome,
                                row.ref.attempt.value), row.ref.stage_ref());
    }
  } else if (row.ended_ms != 0) {
    return broken(fmt::format("attempt {} has an end but no outcome", row.ref.attempt.value),
                  row.ref.stage_ref());
  }
  return record;
}

StageResult make_result(const AttemptRow& row) {
  StageResult result{row.ref, std::nullopt, row.metrics, row.red_lines, row.notes};
  if (row.checkpoint) {
    result.checkpoint = {*row.checkpoint,
                         {row.worker},
                         row.device_class,
                         !row.checkpoint_state.empty(),
                         row.checkpoint_state == "corrupt"};
  }
  return result;
}

class Rebuilder {
 public:
  Rebuilder(StoredState& stored, Core& core, Now now) : rows_(stored), core_(core), now_(now) {}

  void rebuild_job(JobRow& row, std::vector<std::string>& warnings) {
    if (!row.request.empty()) core_.requests[row.request] = row.job;
    Result<Job> job = make_job(row);
    Status checked = job.ok() ? check_job(row, *job) : Status(job.error());
    if (!checked.ok()) {
      core_.quarantined[row.job] = checked.error().line();
      core_.last_job = std::max(core_.last_job, row.job);
      warnings.push_back(fmt::format("job {} {} is quarantined: {}", row.job.value, row.name,
                                     checked.error().line()));
      return;
    }
    const Job& added = add_job(core_, std::move(*job), now_.mono_ms);
    for (std::uint32_t i = 0; i < added.stages.size(); ++i) {
      if (is_active(added.stages[i].state)) suspect({row.job, i});
    }
  }

 private:
  Result<Job> make_job(JobRow& row) {
    const std::string where = fmt::format("job {}", row.job.value);
    Job job;
    NS_TRY_ASSIGN(job.spec, job_spec_from_json(row.spec_json, where));
    const auto state = job_state_from(row.state);
    if (!state) return Error{ErrorCode::corrupt, "unknown state '" + row.state + "'", where, ""};
    job.id = row.job;
    job.state = *state;
    job.source_text = std::move(row.source_text);
    job.user = row.user;
    job.request = row.request;
    job.submitted_ms = row.submitted_ms;
    job.ended_ms = row.ended_ms;
    job.graph = make_graph(job.spec);
    const std::span<StageRow> stages = rows_.stages_of(row.job);
    if (stages.size() != job.spec.stages.size()) {
      return Error{
          ErrorCode::corrupt,
          fmt::format("{} stages stored, {} in its spec", stages.size(), job.spec.stages.size()),
          where, ""};
    }
    job.stages.reserve(stages.size());
    for (const StageSpec& spec : job.spec.stages) {
      StageRow* found = Rows::find(stages, spec.name);
      if (found == nullptr) return broken("the stage is not stored", {row.job, spec.name});
      NS_TRY_ASSIGN(Stage stage, make_stage(*found, spec));
      job.stages.push_back(std::move(stage));
    }
    return job;
  }

  Result<Stage> make_stage(StageRow& row, const StageSpec& spec) {
    Stage stage;
    const auto state = stage_state_from(row.state);
    if (!state) return broken("unknown state '" + row.state + "'", row.stage);
    stage.state = *state;
    stage.attempt = row.attempt;
    stage.base_attempt = row.base_attempt;
    stage.key = std::move(row.key);
    stage.retry_reason = std::move(row.retry_reason);
    stage.reuse_reason = std::move(row.reuse_reason);
    stage.no_reuse = row.no_reuse;
    stage.pinned = row.pinned;
    stage.ready_mono_ms = now_.mono_ms;
    constexpr std::int64_t backoff_ms_max = 10 * 60'000;   // a clock that was set cannot stall it
    const std::int64_t left = std::clamp<std::int64_t>(
        row.not_before_ms - now_.wall_ms, 0, std::max(backoff_ms_max, spec.retry.backoff_ms));
    if (left > 0) stage.not_before_mono_ms = now_.mono_ms + left;
    const Rows::Attempts attempts = rows_.attempts_of(row);
    stage.attempts.reserve(attempts.size());
    for (AttemptRow& attempt : attempts) {
      NS_TRY_ASSIGN(AttemptRecord record, make_record(attempt));
      if (record.outcome && record.number > stage.base_attempt && !record.excused) {
        count_end(stage, *record.outcome, record.progress_done);
      }
      stage.attempts.push_back(std::move(record));
    }
    if (row.result) {
      const AttemptRow* source = rows_.find(*row.result);
      if (source == nullptr) {
        return broken("its result " + to_string(*row.result) + " is not stored", row.stage);
      }
      stage.result = make_result(*source);
    }
    NS_TRY(check_stage(row, stage));
    return stage;
  }

  static Status check_stage(const StageRow& row, const Stage& stage) {
    const std::int32_t last = stage.attempts.empty() ? 0 : stage.attempts.back().number.value;
    if (last != stage.attempt.value) {
      return broken(fmt::format("attempt {} but the last one stored is {}", stage.attempt.value,
                                last), row.stage);
    }
    for (std::size_t i = 0; i < stage.attempts.size(); ++i) {
      const bool may_be_open = i + 1 == stage.attempts.size() && is_active(stage.state);
      const bool open = !stage.attempts[i].outcome;
      if (open != may_be_open) {
        return broken(fmt::format("{}, and attempt {} is {}", to_string(stage.state),
                                  stage.attempts[i].number.value, open ? "open" : "ended"),
                      row.stage);
      }
    }
    if (is_active(stage.state) && (stage.attempts.empty() || row.worker.empty() ||
                                   row.worker != stage.attempts.back().worker.value)) {
      return broken(fmt::format("{} without its worker", to_string(stage.state)), row.stage);
    }
    if (has_result(stage.state) && (!stage.result || !stage.result->checkpoint)) {
      return broken(fmt::format("{} without a checkpoint", to_string(stage.state)), row.stage);
    }
    return {};
  }

  static Status check_job(const JobRow& row, const Job& job) {
    StateCounts counts{};
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
      const StageState state = job.stages[i].state;
      counts[static_cast<std::size_t>(state)] += 1;
      bool all = true, dead_end = false;
      for (std::uint32_t need : job.graph.needs[i]) {
        const StageState of = job.stages[need].state;
        all = all && has_result(of);
        dead_end = dead_end || (is_final(of) && !has_result(of));
      }
      const bool wants_all = state == StageState::ready || is_active(state) || has_result(state);
      const bool wants_not_all = state == StageState::waiting || state == StageState::blocked;
      if ((wants_all && !all) || (wants_not_all && all) ||
          (state == StageState::waiting && dead_end) ||
          (state == StageState::blocked && !dead_end)) {
        return broken(fmt::format("{} does not follow from what it needs", to_string(state)),
                      {row.job, job.spec.stages[i].name});
      }
    }
    if (job.state != job_state_of(counts)) {
      return Error{ErrorCode::corrupt, fmt::format("{} does not follow from its stages", row.state),
                   fmt::format("job {}", row.job.value), ""};
    }
    return {};
  }

  // Its worker may well be running it: nothing is said about it before the amnesty ends.
  void suspect(StageAt at) {
    const Stage& stage = stage_at(core_, at);
    LiveAttempt live;
    live.ref = attempt_of(core_, at);
    live.worker = stage.attempts.back().worker;
    live.assigned_mono_ms = now_.mono_ms;
    live.asked_mono_ms = now_.mono_ms;
    if (stage.state == StageState::running) live.started_mono_ms = now_.mono_ms;
    live.suspected = true;
    Worker& worker = core_.workers[live.worker];
    worker.name = live.worker;
    worker.state = WorkerState::unknown;
    worker.last_word_mono_ms = now_.mono_ms;
    const AttemptRow* row = rows_.find(live.ref);
    hold_slot(worker, live.ref, spec_at(core_, at).resources,
              row == nullptr ? std::vector<int>() : row->gpu_devices);
    core_.live.emplace(at, std::move(live));
  }

  Rows rows_;
  Core& core_;
  const Now now_;
};

}  // namespace

Recovered recover_core(StoredState stored, ServerEpoch epoch, std::int64_t amnesty_ms, Now now) {
  Recovered recovered;
  Core& core = recovered.core;
  core.epoch = epoch;
  core.last_job = stored.last_job;
  core.amnesty_until_mono_ms = now.mono_ms + amnesty_ms;
  for (const WorkerRow& row : stored.workers) {
    Worker& worker = core.workers[row.worker];
    worker.name = row.worker;
    worker.session = row.session;
    worker.host = row.host;
    worker.pid = row.pid;
    worker.software = row.software;
    worker.state = WorkerState::lost;      // unless something is found that it may be running
    worker.last_word_mono_ms = now.mono_ms;
    worker.last_word_wall_ms = row.seen_ms;
  }
  Rebuilder rebuilder(stored, core, now);
  for (JobRow& row : stored.jobs) rebuilder.rebuild_job(row, recovered.warnings);
  for (EventRow& row : stored.events) {
    if (Job* job = find_job(core, row.job)) job->events.push_back(std::move(row));
  }
  for (const AttemptRow& row : stored.attempts) {
    if (row.checkpoint_state == "dropping") core.dropping[row.ref] = {WorkerId{row.worker}};
  }
  for (const OutboxRow& row : stored.outbox) core.outbox.emplace(row.id, row);
  return recovered;
}

}  // namespace nightshift
