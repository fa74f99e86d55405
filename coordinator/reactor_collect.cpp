// The disk quota: what collect.h chose is stored as dropping, its worker is told until it says that
// it is gone. A stage whose checkpoint was collected keeps its numbers.
#include <fmt/format.h>

#include "coordinator/collect.h"
#include "coordinator/reactor_steps.h"

namespace nightshift {

namespace {

AttemptRecord* record_of(Core& core, const AttemptRef& ref) {
  const auto at = find_stage(core, ref.stage_ref());
  if (!at) return nullptr;
  for (AttemptRecord& record : stage_at(core, *at).attempts) {
    if (record.number == ref.attempt) return &record;
  }
  return nullptr;
}

void drop(Turn& turn, const Worker& worker, const AttemptRef& ref) {
  AttemptRecord* record = record_of(turn.core, ref);
  if (record == nullptr) return;
  record->collected = true;
  turn.core.dropping.insert_or_assign(ref, DropOrder{worker.name});
  turn.effects.changes.push_back(CheckpointMoved{ref, "", "dropping"});
  tell(turn, ref.job,
       fmt::format("event=checkpoint_collected stage={} attempt={} worker={} mib={}", ref.stage,
                   ref.attempt.value, worker.name.value, record->checkpoint_bytes >> 20));
}

void tell_drops(Turn& turn) {
  for (auto& [ref, order] : turn.core.dropping) {
    const Worker* worker = find_worker(turn.core, order.worker);
    if (worker == nullptr || worker->state != WorkerState::online) continue;
    const bool told = order.told_mono_ms >= 0;
    if (told && turn.now.mono_ms - order.told_mono_ms < turn.options.drop_repeat_ms) continue;
    order.told_mono_ms = turn.now.mono_ms;
    send_to(turn, *worker, DropCheckpoint{ref});
  }
}

}  // namespace

void collect_checkpoints(Turn& turn) {
  if (std::exchange(turn.core.collect_due, false)) {
    for (auto& [name, worker] : turn.core.workers) {
      if (worker.resources.disk_quota_bytes <= 0) continue;
      const Collection plan = plan_collection(turn.core, worker);
      mark_collected(turn.core, {plan.refs.begin(), plan.refs.end()});
      for (const AttemptRef& ref : plan.refs) drop(turn, worker, ref);
      const bool is_over = plan.left_bytes > worker.resources.disk_quota_bytes;
      if (is_over && !worker.over_quota_told) {
        tell(turn, {},
             fmt::format("event=disk_quota_exceeded {} mib={} quota_mib={} "
                         "hint=\"all of it is in use, pinned or the last of its job\"",
                         field("worker", name.value), plan.left_bytes >> 20,
                         worker.resources.disk_quota_bytes >> 20));
      }
      worker.over_quota_told = is_over;
    }
  }
  tell_drops(turn);
}

bool mark_corrupt(Turn& turn, const StageRef& ref) {
  const auto at = find_stage(turn.core, ref);
  const Stage* stage = at ? &stage_at(turn.core, *at) : nullptr;
  if (stage == nullptr || !has_result(stage->state) || !stage->result->checkpoint) return false;
  if (stage->result->checkpoint->collected) return stage->result->checkpoint->corrupt;
  const AttemptRef made_by = stage->result->from;
  AttemptRecord* record = record_of(turn.core, made_by);
  if (record == nullptr) return false;
  record->collected = true;
  mark_collected(turn.core, {made_by}, true);
  turn.effects.changes.push_back(CheckpointMoved{made_by, "", "corrupt"});
  tell(turn, ref.job,
       fmt::format("event=checkpoint_corrupt stage={} attempt={} worker={}", made_by.stage,
                   made_by.attempt.value, record->worker.value));
  return true;
}

void on_checkpoint_dropped(Turn& turn, const Sender& sender, const CheckpointDropped& report) {
  if (note_word(turn, sender.worker, sender.session) == nullptr) return;
  const auto order = turn.core.dropping.find(report.ref);
  if (order == turn.core.dropping.end() || order->second.worker != sender.worker) return;
  if (!report.ok) {
    tell(turn, report.ref.job,
         fmt::format("event=checkpoint_not_dropped stage={} attempt={} {}", report.ref.stage,
                     report.ref.attempt.value, field("why", report.reason)));
    return;  // asked again
  }
  turn.core.dropping.erase(order);
  turn.effects.changes.push_back(CheckpointMoved{report.ref, "dropping", "dropped"});
}

Status on_pin(Turn& turn, JobId id, const std::string& stage, bool pinned) {
  const Job* job = find_job(turn.core, id);
  if (job == nullptr) {
    return Error{ErrorCode::not_found, fmt::format("there is no job {}", id.value), "", ""};
  }
  if (!stage.empty() && !job->graph.index.contains(stage)) {
    return Error{ErrorCode::not_found, fmt::format("job {} has no stage {}", id.value, stage), "",
                 ""};
  }
  for (std::uint32_t i = 0; i < job->stages.size(); ++i) {
    const std::string& name = job->spec.stages[i].name;
    Stage& changed = stage_at(turn.core, {id, i});
    if ((!stage.empty() && stage != name) || changed.pinned == pinned) continue;
    changed.pinned = pinned;
    turn.effects.changes.push_back(StagePinned{{id, name}, pinned});
    tell(turn, id, fmt::format("event=stage_{} stage={}", pinned ? "pinned" : "unpinned", name));
  }
  if (!pinned) turn.core.collect_due = true;
  return {};
}

}  // namespace nightshift
