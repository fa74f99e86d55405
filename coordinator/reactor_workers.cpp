// Handlers of workers coming, speaking and going.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coordinator/reactor_steps.h"

namespace nightshift {

namespace {

void welcome(Turn& turn, const WorkerId& worker, const std::string& session) {
  turn.effects.sends.push_back({worker, session,
                                WorkerWelcome{turn.core.epoch.value, turn.options.heartbeat_ms,
                                              turn.options.lease_ms}});
}

// It believes that it is welcome, but its hello never came: a welcome alone would not tell it.
void ask_for_hello(Turn& turn, const Heartbeat& heartbeat) {
  turn.effects.sends.push_back(
      {heartbeat.worker, heartbeat.session,
       ErrorReply{0, to_string(ErrorCode::not_found), "no hello came from this session",
                  heartbeat.worker.value, "say hello again"}});
}

std::vector<AttemptRef> held_refs(const Worker& worker) {
  std::vector<AttemptRef> refs;
  for (const auto& [ref, slot] : worker.held) refs.push_back(ref);
  return refs;
}

void lose_attempt(Turn& turn, const WorkerId& worker, const AttemptRef& ref,
                  const std::string& why) {
  StageAt at;
  if (current_attempt(turn, worker, ref, &at) == nullptr) return;
  end_badly(turn, at, {Outcome::lost, why, nullptr});
}

// The worker lists it, so it goes on. Clocks start anew: nothing was heard of it meanwhile.
void attach(Turn& turn, StageAt at, LiveAttempt& live, const HeldAttempt& held) {
  live.suspected = false;
  live.pulse.reset();
  live.pulse_mono_ms = turn.now.mono_ms;
  if (held.preparing) return;
  if (live.started_mono_ms < 0) live.started_mono_ms = turn.now.mono_ms;
  if (held.finished) return;   // its end is reported next
  mark_started(turn, at, live, "");
  tell(turn, at.job, fmt::format("event=attempt_attached stage={} attempt={} worker={}",
                                 spec_at(turn.core, at).name, live.ref.attempt.value,
                                 live.worker.value));
}

// What the coordinator believes that this worker holds, against what it says.
void compare_held(Turn& turn, Worker& worker, const WorkerHello& hello, bool same_session) {
  std::map<AttemptRef, HeldAttempt> listed;
  for (const HeldAttempt& held : hello.held) listed.emplace(held.ref, held);
  for (const AttemptRef& ref : held_refs(worker)) {
    const auto said = listed.find(ref);
    StageAt at;
    LiveAttempt* live = current_attempt(turn, worker.name, ref, &at);
    if (live == nullptr) {
      if (said == listed.end() || said->second.finished) release_slot(worker, ref);
    } else if (said != listed.end()) {
      attach(turn, at, *live, said->second);
    } else if (same_session && stage_at(turn.core, at).state == StageState::assigned) {
      live->suspected = false;   // it never came: asked again, and given up like any order
      send_order(turn, at);
    } else {
      lose_attempt(turn, worker.name, ref,
                   fmt::format("worker {} came back without it", worker.name.value));
    }
  }
  for (const auto& [ref, held] : listed) {
    if (current_attempt(turn, worker.name, ref) != nullptr) continue;
    refuse_report(turn, worker.name, ref, held.finished ? "held, finished" : "held, running");
    if (held.finished) {
      send_acknowledgement(turn, worker, ref, false);
    } else {
      stop_zombie(turn, worker, ref);
    }
  }
}

void store_worker(Turn& turn, const Worker& worker) {
  turn.effects.changes.push_back(WorkerSeen{{worker.name, worker.session, worker.host, worker.pid,
                                             worker.software, turn.now.wall_ms}});
}

void take_pulse(Turn& turn, Worker& worker, const AttemptPulse& pulse) {
  StageAt at;
  LiveAttempt* live = current_attempt(turn, worker.name, pulse.ref, &at);
  if (live == nullptr) {
    const auto held = worker.held.find(pulse.ref);
    const bool expected = held != worker.held.end() && held->second.stopping;
    if (!expected) refuse_report(turn, worker.name, pulse.ref, "pulse");
    stop_zombie(turn, worker, pulse.ref);
    return;
  }
  live->suspected = false;
  live->pulse = pulse;
  live->pulse_mono_ms = turn.now.mono_ms;
  if (pulse.preparing) return;   // it fetches its inputs: that is an answer, and no start
  mark_started(turn, at, *live, "");
  live->started_mono_ms = turn.now.mono_ms - pulse.elapsed_ms;
}

}  // namespace

Worker* note_word(Turn& turn, const WorkerId& name, const std::string& session) {
  Worker* worker = find_worker(turn.core, name);
  if (worker == nullptr || worker->session != session) return nullptr;
  worker->last_word_mono_ms = turn.now.mono_ms;
  worker->last_word_wall_ms = turn.now.wall_ms;
  if (worker->state == WorkerState::lost && worker->greeted) {
    worker->state = WorkerState::online;
    turn.effects.schedule = true;
    tell(turn, {}, fmt::format("event=worker_back {}", field("worker", name.value)));
  }
  return worker;
}

void on_worker_hello(Turn& turn, const WorkerHello& hello) {
  Worker& worker = turn.core.workers[hello.worker];
  const bool is_new = worker.name.value.empty();
  const bool same_session = !is_new && worker.session == hello.session;
  if (!is_new && !same_session && worker.state == WorkerState::online) {
    send_to(turn, worker, WorkerShutdown{fmt::format("another worker named {} has connected",
                                                     hello.worker.value)});
  }
  worker.name = hello.worker;
  worker.session = hello.session;
  worker.host = hello.host;
  worker.pid = hello.pid;
  worker.software = hello.software;
  worker.resources = hello.resources;
  worker.state = WorkerState::online;
  worker.greeted = true;
  worker.last_word_mono_ms = turn.now.mono_ms;
  worker.last_word_wall_ms = turn.now.wall_ms;
  welcome(turn, worker.name, worker.session);
  if (!same_session) {
    store_worker(turn, worker);
    tell(turn, {}, fmt::format("event=worker_hello {} {} pid={} slots={} gpu={}",
                               field("worker", worker.name.value), field("host", worker.host),
                               worker.pid, worker.resources.slots, worker.resources.gpu));
  }
  compare_held(turn, worker, hello, same_session);
  turn.core.collect_due = true;
  turn.effects.schedule = true;
}

void on_heartbeat(Turn& turn, const Heartbeat& heartbeat) {
  Worker* worker = note_word(turn, heartbeat.worker, heartbeat.session);
  const bool this_epoch = heartbeat.server_epoch == turn.core.epoch.value;
  if (this_epoch && (worker == nullptr || !worker->greeted)) {
    ask_for_hello(turn, heartbeat);
    return;
  }
  welcome(turn, heartbeat.worker, heartbeat.session);
  if (worker == nullptr) return;
  worker->disk_free_bytes = heartbeat.disk_free_bytes;
  worker->temp_free_bytes = heartbeat.temp_free_bytes;
  // One of an earlier epoch is a sign of life and no more; the welcome makes the worker say hello.
  if (!this_epoch || worker->state != WorkerState::online) return;
  std::set<AttemptRef> listed;
  for (const AttemptPulse& pulse : heartbeat.attempts) {
    listed.insert(pulse.ref);
    take_pulse(turn, *worker, pulse);
  }
  for (const AttemptRef& ref : held_refs(*worker)) {
    const HeldSlot& slot = worker->held.at(ref);
    if (!slot.stopping || listed.contains(ref)) continue;
    if (turn.now.mono_ms - slot.stop_since_mono_ms < turn.options.stop_forget_ms) continue;
    release_slot(*worker, ref);
    turn.effects.schedule = true;
  }
}

void on_worker_lost(Turn& turn, const WorkerId& name, const std::string& why) {
  Worker* worker = find_worker(turn.core, name);
  if (worker == nullptr || worker->state == WorkerState::lost) return;
  tell(turn, {}, fmt::format("event=worker_lost {} {}", field("worker", name.value),
                             field("why", why)));
  const std::vector<AttemptRef> refs = held_refs(*worker);
  worker->state = WorkerState::lost;
  for (const AttemptRef& ref : refs) {
    lose_attempt(turn, name, ref, fmt::format("worker {} lost: {}", name.value, why));
    release_slot(*worker, ref);
  }
}

}  // namespace nightshift
