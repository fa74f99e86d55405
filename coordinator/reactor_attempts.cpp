// Handlers of what workers report about attempts.
#include <fmt/format.h>

#include "coordinator/reactor_steps.h"

namespace nightshift {

namespace {

// A report of an attempt that is not the current one. One that we asked to stop is no surprise,
// unless it claims success.
void refuse_end(Turn& turn, Worker& worker, const AttemptRef& ref, bool success,
                std::string_view what) {
  const auto held = worker.held.find(ref);
  const bool expected = held != worker.held.end() && held->second.stopping && !success;
  if (!expected) refuse_report(turn, worker.name, ref, what);
  if (held != worker.held.end()) {
    release_slot(worker, ref);
    turn.effects.schedule = true;
  }
  send_acknowledgement(turn, worker, ref, false);
}

// What the worker saw, in the light of what we know: an attempt that we stopped ends with our
// reason, and a worker that cancels by itself (it is being shut down) has lost the attempt.
AttemptEnd judge_end(const LiveAttempt& live, const AttemptFinished& report) {
  AttemptEnd end{report.outcome, report.reason, &report};
  const bool by_signal = report.outcome == Outcome::crash || report.outcome == Outcome::cancelled;
  if (live.stop && by_signal) {
    end.outcome = live.stop->outcome;
    end.reason = live.stop->reason;
  } else if (report.outcome == Outcome::cancelled) {
    end.outcome = Outcome::lost;
    end.reason = "ended by its worker: " + report.reason;
  }
  return end;
}

}  // namespace

void on_attempt_started(Turn& turn, const Sender& sender, const AttemptStarted& report) {
  Worker* worker = note_word(turn, sender.worker, sender.session);
  if (worker == nullptr) return;
  StageAt at;
  LiveAttempt* live = current_attempt(turn, sender.worker, report.ref, &at);
  if (live == nullptr) {
    refuse_report(turn, sender.worker, report.ref, "attempt_started");
    stop_zombie(turn, *worker, report.ref);
    return;
  }
  mark_started(turn, at, *live, report.log_path);
}

void on_attempt_finished(Turn& turn, const Sender& sender, const AttemptFinished& report) {
  Worker* worker = note_word(turn, sender.worker, sender.session);
  if (worker == nullptr) return;
  StageAt at;
  LiveAttempt* live = current_attempt(turn, sender.worker, report.ref, &at);
  if (live == nullptr) {
    refuse_end(turn, *worker, report.ref, report.outcome == Outcome::ok, "attempt_finished");
    return;
  }
  live->suspected = false;
  if (report.outcome != Outcome::ok) {
    end_badly(turn, at, judge_end(*live, report));
    send_acknowledgement(turn, *worker, report.ref, true);
    return;
  }
  if (!report.checkpoint) {
    AttemptFinished without = report;
    end_badly(turn, at, {Outcome::crash, "ended with success but left no checkpoint", &without});
    send_acknowledgement(turn, *worker, report.ref, true);
    return;
  }
  if (report.committed) {
    end_well(turn, at, report);
    send_acknowledgement(turn, *worker, report.ref, true);
    return;
  }
  mark_started(turn, at, *live, "");
  live->finished = report;
  live->stop.reset();
  live->commit_sent_mono_ms = turn.now.mono_ms;
  send_to(turn, *worker, CommitCheckpoint{report.ref});
}

void on_checkpoint_committed(Turn& turn, const Sender& sender, const CheckpointCommitted& report) {
  Worker* worker = note_word(turn, sender.worker, sender.session);
  if (worker == nullptr) return;
  StageAt at;
  LiveAttempt* live = current_attempt(turn, sender.worker, report.ref, &at);
  if (live == nullptr) {
    refuse_end(turn, *worker, report.ref, report.ok, "checkpoint_committed");
    return;
  }
  // Asked by an earlier coordinator: what was measured comes with the worker's next
  // attempt_finished, which says `committed`.
  if (!live->finished) return;
  const AttemptFinished finished = *live->finished;
  if (report.ok) {
    end_well(turn, at, finished);
  } else {
    end_badly(turn, at, {Outcome::disk, "checkpoint not committed: " + report.reason, &finished});
  }
  send_acknowledgement(turn, *worker, report.ref, true);
}

void on_assign_refused(Turn& turn, const Sender& sender, const AssignRefused& report) {
  Worker* worker = note_word(turn, sender.worker, sender.session);
  if (worker == nullptr) return;
  StageAt at;
  LiveAttempt* live = current_attempt(turn, sender.worker, report.ref, &at);
  Stage* stage = live == nullptr ? nullptr : &stage_at(turn.core, at);
  if (stage == nullptr || stage->state != StageState::assigned) {
    refuse_report(turn, sender.worker, report.ref, "assign_refused");
    const auto held = worker->held.find(report.ref);
    if (stage == nullptr && held != worker->held.end()) {
      release_slot(*worker, report.ref);
      turn.effects.schedule = true;
    }
    return;
  }
  stage->refused_by.insert(sender.worker);
  if (!report.corrupt_input.empty() && mark_corrupt(turn, {at.job, report.corrupt_input})) {
    end_badly(
        turn, at,
        {Outcome::error,
         fmt::format("the checkpoint of {} is corrupt: {}", report.corrupt_input, report.reason),
         nullptr});
    return;
  }
  AttemptEnd end{Outcome::lost,
                 fmt::format("refused by {}: {}", sender.worker.value, report.reason), nullptr};
  end.excused = report.input_missing;
  end_badly(turn, at, end);
}

}  // namespace nightshift
