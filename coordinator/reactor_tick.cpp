// What time alone brings: leases, amnesty, back-off, the watchdog, and what has to be said again.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "coordinator/reactor_steps.h"

namespace nightshift {

namespace {

void check_leases(Turn& turn) {
  std::vector<std::pair<WorkerId, std::string>> lost;
  for (const auto& [name, worker] : turn.core.workers) {
    if (worker.state == WorkerState::lost) continue;
    const std::int64_t silent_ms = turn.now.mono_ms - worker.last_word_mono_ms;
    if (silent_ms <= turn.options.lease_ms) continue;
    if (turn.now.mono_ms < turn.core.amnesty_until_mono_ms) continue;
    lost.emplace_back(name, fmt::format("no word for {} s", silent_ms / 1000));
  }
  for (const auto& [name, why] : lost) on_worker_lost(turn, name, why);
}

void ask_to_stop(Turn& turn, StageAt at, LiveAttempt& live, Outcome outcome,
                 const std::string& reason) {
  const Worker* worker = find_worker(turn.core, live.worker);
  if (worker == nullptr) return;
  live.stop = StopAttempt{live.ref, outcome, reason};
  live.stop_sent_mono_ms = turn.now.mono_ms;
  send_to(turn, *worker, *live.stop);
  tell(turn, at.job, fmt::format("event=attempt_stopped stage={} attempt={} outcome={} {}",
                                 spec_at(turn.core, at).name, live.ref.attempt.value,
                                 to_string(outcome), field("reason", reason)));
}

// What a detector of the watchdog found: how the attempt would end, and why.
struct Alarm {
  Outcome outcome;
  std::string reason;
};

// Neither progress nor log for too long, outside a phase that was declared quiet. Ages go on from
// the last pulse; without any pulse they count from the start.
std::optional<Alarm> silence_alarm(const Turn& turn, const WatchdogSpec& watchdog,
                                   const LiveAttempt& live) {
  if (watchdog.log_silence_ms <= 0) return std::nullopt;
  const std::int64_t last = live.pulse_mono_ms >= 0 ? live.pulse_mono_ms : live.started_mono_ms;
  const std::int64_t since = turn.now.mono_ms - last;
  std::int64_t progress_age = since, log_age = since;
  if (live.pulse) {
    progress_age += live.pulse->progress_age_ms;
    log_age += live.pulse->log_age_ms;
    if (live.pulse->quiet_left_ms > since) return std::nullopt;
  }
  if (std::min(progress_age, log_age) <= watchdog.log_silence_ms) return std::nullopt;
  return Alarm{Outcome::hung, fmt::format("no progress for {} s and no log for {} s, limit {} s",
                                          progress_age / 1000, log_age / 1000,
                                          watchdog.log_silence_ms / 1000)};
}

// Of the whole process tree, without page cache, as the last pulse said.
std::optional<Alarm> memory_alarm(const WatchdogSpec& watchdog, const LiveAttempt& live) {
  if (watchdog.memory_max_bytes <= 0 || !live.pulse) return std::nullopt;
  if (live.pulse->memory_bytes <= watchdog.memory_max_bytes) return std::nullopt;
  return Alarm{Outcome::oom,
               fmt::format("holds {} MiB, limit {} MiB", live.pulse->memory_bytes >> 20,
                           watchdog.memory_max_bytes >> 20)};
}

// Of the checkpoint store and of TMPDIR, as the worker's last heartbeat said; unknown is no alarm.
std::optional<Alarm> disk_alarm(const WatchdogSpec& watchdog, const Worker& worker) {
  for (const auto& [name, free] : {std::pair("the checkpoint store", worker.disk_free_bytes),
                                   std::pair("TMPDIR", worker.temp_free_bytes)}) {
    if (free < 0 || free >= watchdog.min_disk_free_bytes) continue;
    return Alarm{Outcome::disk, fmt::format("{} MiB free for {}, at least {} MiB asked",
                                            free >> 20, name, watchdog.min_disk_free_bytes >> 20)};
  }
  return std::nullopt;
}

void check_watchdog(Turn& turn, StageAt at, LiveAttempt& live) {
  const WatchdogSpec& watchdog = turn.core.jobs.at(at.job).spec.watchdog;
  const Worker* worker = find_worker(turn.core, live.worker);
  if (live.stop || worker == nullptr) return;
  std::optional<Alarm> alarm = silence_alarm(turn, watchdog, live);
  if (!alarm) alarm = memory_alarm(watchdog, live);
  if (!alarm) alarm = disk_alarm(watchdog, *worker);
  if (!alarm) {
    live.alarm_told = false;
    return;
  }
  if (watchdog.mode == WatchdogMode::act) {
    ask_to_stop(turn, at, live, alarm->outcome, alarm->reason);
  } else if (!live.alarm_told) {
    live.alarm_told = true;
    tell(turn, at.job, fmt::format("event=watchdog_{} stage={} attempt={} {}",
                                   watchdog.mode == WatchdogMode::warn ? "warn" : "log",
                                   spec_at(turn.core, at).name, live.ref.attempt.value,
                                   field("reason", alarm->reason)));
  }
}

void check_wall_limit(Turn& turn, StageAt at, LiveAttempt& live) {
  const std::int64_t limit_ms = spec_at(turn.core, at).wall_limit_ms;
  const std::int64_t elapsed_ms = turn.now.mono_ms - live.started_mono_ms;
  if (limit_ms <= 0 || live.stop || elapsed_ms <= limit_ms) return;
  ask_to_stop(turn, at, live, Outcome::timeout,
              fmt::format("ran for {} s, limit {} s", elapsed_ms / 1000, limit_ms / 1000));
}

// The answer to an order is missing: asked again, then given up. The slot stays taken until the
// worker shows that it does not have it.
void check_order(Turn& turn, StageAt at, LiveAttempt& live) {
  const std::int64_t heard_mono_ms = std::max(live.assigned_mono_ms, live.pulse_mono_ms);
  const std::int64_t waited_ms = turn.now.mono_ms - heard_mono_ms;
  if (waited_ms > turn.options.assign_give_up_ms) {
    const AttemptRef ref = live.ref;
    const WorkerId name = live.worker;
    stage_at(turn.core, at).refused_by.insert(name);
    end_badly(turn, at, {Outcome::lost, fmt::format("worker {} did not start it in {} s",
                                                    name.value, waited_ms / 1000),
                         nullptr});
    if (Worker* worker = find_worker(turn.core, name)) stop_zombie(turn, *worker, ref);
  } else if (turn.now.mono_ms - live.asked_mono_ms >= turn.options.assign_repeat_ms) {
    send_order(turn, at);
  }
}

void check_running(Turn& turn, StageAt at, LiveAttempt& live) {
  const Worker* worker = find_worker(turn.core, live.worker);
  if (worker == nullptr) return;
  if (live.finished) {
    if (turn.now.mono_ms - live.commit_sent_mono_ms >= turn.options.commit_repeat_ms) {
      live.commit_sent_mono_ms = turn.now.mono_ms;
      send_to(turn, *worker, CommitCheckpoint{live.ref});
    }
    return;
  }
  // Its worker speaks, but no longer of this attempt: neither running nor finished there.
  const std::int64_t unheard_ms =
      turn.now.mono_ms - std::max(live.pulse_mono_ms, live.started_mono_ms);
  const bool worker_speaks =
      turn.now.mono_ms - worker->last_word_mono_ms <= turn.options.lease_ms / 2;
  if (live.pulse && worker_speaks && unheard_ms > 3 * turn.options.lease_ms) {
    const AttemptRef ref = live.ref;
    const WorkerId name = live.worker;
    end_badly(turn, at, {Outcome::lost, fmt::format("worker {} has not mentioned it for {} s",
                                                    name.value, unheard_ms / 1000),
                         nullptr});
    if (Worker* holder = find_worker(turn.core, name)) stop_zombie(turn, *holder, ref);
    return;
  }
  check_watchdog(turn, at, live);
  check_wall_limit(turn, at, live);
  if (live.stop && turn.now.mono_ms - live.stop_sent_mono_ms >= turn.options.stop_repeat_ms) {
    live.stop_sent_mono_ms = turn.now.mono_ms;
    send_to(turn, *worker, *live.stop);
  }
}

void check_attempts(Turn& turn) {
  std::vector<StageAt> active;
  for (const auto& [at, live] : turn.core.live) active.push_back(at);
  for (const StageAt& at : active) {
    LiveAttempt& live = turn.core.live.at(at);
    const Worker* worker = find_worker(turn.core, live.worker);
    if (live.suspected || worker == nullptr || worker->state != WorkerState::online) continue;
    if (stage_at(turn.core, at).state == StageState::assigned) {
      check_order(turn, at, live);
    } else {
      check_running(turn, at, live);
    }
  }
}

void repeat_stops(Turn& turn) {
  for (auto& [name, worker] : turn.core.workers) {
    if (worker.state != WorkerState::online) continue;
    for (auto& [ref, slot] : worker.held) {
      if (!slot.stopping) continue;
      if (turn.now.mono_ms - slot.stop_told_mono_ms < turn.options.stop_repeat_ms) continue;
      slot.stop_told_mono_ms = turn.now.mono_ms;
      send_to(turn, worker, slot.stop);
    }
  }
}

}  // namespace

void on_tick(Turn& turn) {
  check_leases(turn);
  check_attempts(turn);
  repeat_stops(turn);
  collect_checkpoints(turn);
  if (release_delayed(turn.core, turn.now.mono_ms)) turn.effects.schedule = true;
  // A night window may have opened, a stage may have waited long enough for a reservation.
  if (!turn.core.ready.empty()) turn.effects.schedule = true;
}

void on_outbox_tried(Turn& turn, const std::string& id, bool ok, bool maybe_arrived,
                     const std::string& error) {
  const auto found = turn.core.outbox.find(id);
  if (found == turn.core.outbox.end()) return;
  OutboxRow& row = found->second;
  constexpr int tries_max = 5;
  constexpr std::int64_t first_pause_ms = 10'000;
  row.tries += 1;
  row.last_error = error;
  if (ok) {
    row.state = "sent";
  } else if (row.tries >= tries_max) {
    row.state = maybe_arrived ? "uncertain" : "given_up";
  } else {
    row.next_try_ms = turn.now.wall_ms + (first_pause_ms << (2 * (row.tries - 1)));
  }
  turn.effects.changes.push_back(OutboxTried{row});
  if (row.state == "pending") return;
  tell(turn, row.job, fmt::format("event=notification_{} id={} tries={} {}", row.state, row.id,
                                  row.tries, field("error", error)));
  turn.core.outbox.erase(found);
}

std::vector<OutboxRow> outbox_due(const Core& core, Now now) {
  std::vector<OutboxRow> due;
  for (const auto& [id, row] : core.outbox) {
    if (row.next_try_ms <= now.wall_ms) due.push_back(row);
  }
  std::sort(due.begin(), due.end(), [](const OutboxRow& a, const OutboxRow& b) {
    return std::tie(a.created_ms, a.id) < std::tie(b.created_ms, b.id);
  });
  return due;
}

}  // namespace nightshift
