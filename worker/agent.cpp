#include "worker/agent.h"

#include <algorithm>

#include "schema/text.h"

namespace nightshift {

Agent::Agent(AgentOptions options, std::vector<AttemptFinished> unreported, std::int64_t now_ms)
    : options_(std::move(options)),
      last_word_ms_(now_ms),
      next_hello_ms_(now_ms),
      hello_backoff_ms_(options_.backoff_ms_min),
      next_reconnect_ms_(now_ms),
      reconnect_backoff_ms_(options_.backoff_ms_min),
      next_heartbeat_ms_(now_ms),
      next_look_ms_(now_ms) {
  for (AttemptFinished& result : unreported) {
    AssignAttempt order;
    order.ref = result.ref;
    Attempt& attempt = attempts_.try_emplace(result.ref, order, now_ms).first->second;
    attempt.state = State::finished;
    attempt.result = std::move(result);
  }
}

void Agent::log(std::string event, std::vector<std::pair<std::string, std::string>> fields) {
  act(WriteLog{std::move(event), std::move(fields)});
}

Agent::Attempt* Agent::find(const AttemptRef& ref) {
  const auto it = attempts_.find(ref);
  return it == attempts_.end() ? nullptr : &it->second;
}

std::vector<AttemptRef> Agent::running() const {
  std::vector<AttemptRef> refs;
  for (const auto& [ref, attempt] : attempts_) {
    if (is_unfinished(attempt)) refs.push_back(ref);
  }
  return refs;
}

// ---- connection -----------------------------------------------------------------------------

void Agent::on_connected(std::int64_t now_ms) {
  connected_ = true;
  say_hello(now_ms);
}

void Agent::on_disconnected(std::int64_t now_ms) {
  if (connected_) log("disconnected", {});
  connected_ = false;
  welcomed_ = false;
  next_hello_ms_ = now_ms;
}

void Agent::say_hello(std::int64_t now_ms) {
  WorkerHello hello;
  hello.worker = options_.worker;
  hello.session = options_.session;
  hello.host = options_.host;
  hello.pid = options_.pid;
  hello.software = options_.software;
  hello.resources = options_.resources;
  for (const auto& [ref, attempt] : attempts_) {
    hello.held.push_back(
        {ref, attempt.state == State::finished, attempt.state == State::preparing});
  }
  hello_open_ = true;
  next_hello_ms_ = now_ms + hello_backoff_ms_;
  hello_backoff_ms_ = std::min(2 * hello_backoff_ms_, options_.backoff_ms_max);
  send(std::move(hello));
}

struct Agent::OnMessage {
  Agent& agent;
  std::int64_t now_ms;

  void operator()(const WorkerWelcome& m) const { agent.on_welcome(m, now_ms); }
  // An echo of ours: tells the epoch.
  void operator()(const Heartbeat& m) const {
    if (m.server_epoch > agent.epoch_ && !agent.hello_open_) agent.say_hello(now_ms);
  }
  void operator()(const AssignAttempt& m) const { agent.on_assign(m, now_ms); }
  void operator()(const StopAttempt& m) const { agent.on_stop(m); }
  void operator()(const CommitCheckpoint& m) const { agent.on_commit(m); }
  void operator()(const AttemptAcknowledged& m) const { agent.on_acknowledged(m); }
  void operator()(const LogRequest& m) const { agent.act(ReadLog{m}); }
  void operator()(const WorkerShutdown& m) const { agent.on_terminate(m.reason, now_ms); }
  // It does not know us (any more), or did not understand us: hello settles both.
  void operator()(const ErrorReply& m) const {
    agent.log("error_reply", {{"code", m.code}, {"what", m.what}, {"where", m.where}});
    if (!agent.hello_open_) agent.say_hello(now_ms);
  }
  template <typename Other>
  void operator()(const Other&) const {
    agent.log("message_refused", {{"why", "not for a worker"}});
  }
};

void Agent::on_message(const Message& message, std::int64_t now_ms) {
  const auto* welcome = std::get_if<WorkerWelcome>(&message);
  if (welcome != nullptr && welcome->server_epoch < epoch_) {
    log("welcome_refused",
        {{"epoch", std::to_string(welcome->server_epoch)}, {"known", std::to_string(epoch_)}});
    return;
  }
  last_word_ms_ = now_ms;
  next_reconnect_ms_ = now_ms;
  reconnect_backoff_ms_ = options_.backoff_ms_min;
  if (fenced_) log("fence_lifted", {});
  fenced_ = false;
  std::visit(OnMessage{*this, now_ms}, message);
}

void Agent::on_bad_message(const Error& error, std::int64_t now_ms) {
  last_word_ms_ = now_ms;
  log("message_refused", {{"why", error.line()}});
}

// The answer to a hello, or (with the epoch that is known) to a heartbeat.
void Agent::on_welcome(const WorkerWelcome& welcome, std::int64_t now_ms) {
  heartbeat_ms_ = std::clamp<std::int64_t>(welcome.heartbeat_ms, 10, 60'000);
  lease_ms_ = std::max<std::int64_t>(welcome.lease_ms, 2 * heartbeat_ms_);
  const bool is_new = welcome.server_epoch > epoch_;
  epoch_ = welcome.server_epoch;
  if (!hello_open_) {
    if (is_new) say_hello(now_ms);  // a coordinator that has started since, and does not know us
    return;
  }
  hello_open_ = false;
  welcomed_ = true;
  hello_backoff_ms_ = options_.backoff_ms_min;
  next_heartbeat_ms_ = now_ms;
  log("welcomed", {{"epoch", std::to_string(epoch_)}});
  report_all(now_ms);
}

void Agent::report_all(std::int64_t now_ms) {
  next_report_ms_ = now_ms + options_.report_again_ms;
  for (const auto& [ref, attempt] : attempts_) report(attempt);
}

void Agent::report_finished(std::int64_t now_ms) {
  next_report_ms_ = now_ms + options_.report_again_ms;
  for (const auto& [ref, attempt] : attempts_) {
    if (!is_unfinished(attempt)) report(attempt);
  }
}

void Agent::report(const Attempt& attempt) {
  if (attempt.state == State::finished) {
    send(attempt.result);
  } else if (attempt.pid > 0) {
    send(AttemptStarted{attempt.order.ref, attempt.pid, attempt.log_path});
  }
}

// ---- orders ---------------------------------------------------------------------------------

std::string Agent::why_refuse(const AssignAttempt& order) const {
  if (order.server_epoch != epoch_) {
    return "the order is of server epoch " + std::to_string(order.server_epoch) +
           ", this worker follows epoch " + std::to_string(epoch_);
  }
  if (!terminating_.empty()) return "the worker is ending: " + terminating_;
  int used = 0;
  std::string holders;
  for (const auto& [ref, attempt] : attempts_) {
    if (!is_unfinished(attempt)) continue;
    // Two attempts of a stage would share its state/.
    if (ref.stage_ref() == order.ref.stage_ref()) {
      return to_string(ref) + " of the same stage has not ended here";
    }
    ++used;
    holders += (holders.empty() ? "" : ", ") + to_string(ref);
  }
  if (used >= options_.resources.slots) {
    return "no free slot: " + std::to_string(used) + " of " +
           std::to_string(options_.resources.slots) + " in use by " + holders;
  }
  return "";
}

void Agent::on_assign(const AssignAttempt& order, std::int64_t now_ms) {
  if (const Attempt* held = find(order.ref)) {
    report(*held);
    return;
  }
  if (const std::string why = why_refuse(order); !why.empty()) {
    log("assign_refused", {{"attempt", to_string(order.ref)}, {"why", why}});
    send(AssignRefused{order.ref, why, false, ""});
    if (order.server_epoch > epoch_ && !hello_open_) say_hello(now_ms);
    return;
  }
  log("assigned", {{"attempt", to_string(order.ref)}, {"kind", order.order.kind}});
  attempts_.try_emplace(order.ref, order, now_ms);
  act(StartStage{order});
}

void Agent::on_stop(const StopAttempt& stop) {
  Attempt* attempt = find(stop.ref);
  if (attempt == nullptr) {
    // Nothing of it is here, so it has ended: that is what the coordinator waits for.
    AttemptFinished result;
    result.ref = stop.ref;
    result.outcome = stop.outcome == Outcome::ok ? Outcome::cancelled : stop.outcome;
    result.reason = stop.reason.empty() ? "this worker does not hold it"
                                        : stop.reason + "; this worker does not hold it";
    send(std::move(result));
    return;
  }
  if (attempt->state == State::finished) return report(*attempt);
  if (attempt->state == State::sealing) return;  // its report is on the way
  ask_to_stop(*attempt, stop);
}

// The first class stands, except that a person's cancel always wins.
void Agent::ask_to_stop(Attempt& attempt, const StopAttempt& stop) {
  if (!attempt.stop || stop.outcome == Outcome::cancelled) attempt.stop = stop;
  if (attempt.state != State::running || attempt.stop_sent) return;
  attempt.stop_sent = true;
  log("stage_stopping", {{"attempt", to_string(attempt.order.ref)},
                         {"outcome", to_string(stop.outcome)},
                         {"reason", stop.reason}});
  act(StopStage{attempt.order.ref, options_.stop_grace_ms});
}

void Agent::on_commit(const CommitCheckpoint& commit) {
  Attempt* attempt = find(commit.ref);
  if (attempt != nullptr && is_unfinished(*attempt)) {
    send(CheckpointCommitted{commit.ref, false, "the attempt has not ended"});
    return;
  }
  if (attempt != nullptr && attempt->result.committed) {
    send(CheckpointCommitted{commit.ref, true, ""});
    return;
  }
  if (attempt != nullptr) {
    if (attempt->committing) return;  // its answer is on the way
    attempt->committing = true;
  }
  act(CommitAttempt{commit.ref});  // forgotten ones, too: the disk knows
}

void Agent::on_acknowledged(const AttemptAcknowledged& acknowledged) {
  const Attempt* attempt = find(acknowledged.ref);
  if (attempt == nullptr) return;
  if (is_unfinished(*attempt)) {
    log("acknowledgement_refused",
        {{"attempt", to_string(acknowledged.ref)}, {"why", "the attempt has not ended"}});
    return;
  }
  log("acknowledged", {{"attempt", to_string(acknowledged.ref)},
                       {"accepted", acknowledged.accepted ? "true" : "false"}});
  attempts_.erase(acknowledged.ref);
  act(ForgetAttempt{acknowledged.ref, acknowledged.accepted});
}

// ---- time -----------------------------------------------------------------------------------

void Agent::on_tick(std::int64_t now_ms) {
  watch_connection(now_ms);
  if (welcomed_ && now_ms >= next_heartbeat_ms_) send_heartbeat(now_ms);
  if (welcomed_ && now_ms >= next_report_ms_) report_finished(now_ms);
  if (now_ms >= next_look_ms_) {
    next_look_ms_ = now_ms + CutOffWatch::interval_ms;
    watch_alone(now_ms);
  }
  if (is_terminating()) watch_end(now_ms);
}

void Agent::watch_connection(std::int64_t now_ms) {
  const std::int64_t silence = now_ms - last_word_ms_;
  if (connected_ && now_ms >= next_hello_ms_ && (hello_open_ || silence > lease_ms_ / 2)) {
    say_hello(now_ms);
  }
  if (silence <= lease_ms_ || now_ms < next_reconnect_ms_) return;
  log("reconnecting", {{"silent_ms", std::to_string(silence)}});
  on_disconnected(now_ms);
  next_reconnect_ms_ = now_ms + reconnect_backoff_ms_;
  reconnect_backoff_ms_ = std::min(2 * reconnect_backoff_ms_, options_.backoff_ms_max);
  act(Reconnect{});
}

void Agent::watch_alone(std::int64_t now_ms) {
  const std::int64_t silence = now_ms - last_word_ms_;
  const bool fence = silence > options_.fence_after_ms && !fenced_;
  for (auto& [ref, attempt] : attempts_) {
    if (attempt.state != State::running && attempt.state != State::preparing) continue;
    if (silence <= lease_ms_) {
      attempt.watch.reset();
      continue;
    }
    if (fence) {
      ask_to_stop(attempt,
                  {ref, Outcome::lost,
                   "no word from the coordinator for " + std::to_string(silence / 1000) + " s"});
      continue;
    }
    const Verdict verdict = judge_alone(attempt.record.pulse(now_ms), disk_, attempt.order.watchdog,
                                        attempt.order.wall_limit_ms);
    if (const auto ended = attempt.watch.on_look(verdict)) {
      ask_to_stop(attempt, {ref, ended->outcome, ended->reason + "; decided without coordinator"});
    }
  }
  if (!fence) return;
  fenced_ = true;
  log("fenced", {{"silent_ms", std::to_string(silence)}});
}

void Agent::send_heartbeat(std::int64_t now_ms) {
  next_heartbeat_ms_ = now_ms + heartbeat_ms_;
  Heartbeat beat;
  beat.worker = options_.worker;
  beat.session = options_.session;
  beat.server_epoch = epoch_;
  beat.disk_free_bytes = disk_.root_free_bytes.value_or(-1);
  beat.temp_free_bytes = disk_.temp_free_bytes.value_or(-1);
  for (const auto& [ref, attempt] : attempts_) {
    // A pulse says "it runs": not of one whose order may still be refused.
    if (!is_unfinished(attempt) || attempt.state == State::preparing) continue;
    AttemptPulse pulse = attempt.record.pulse(now_ms);
    if (attempt.state == State::sealing) {
      // The worker itself is at work: nobody shall take that for a silent stage.
      pulse.phase = "sealing";
      pulse.quiet_left_ms = std::max(pulse.quiet_left_ms, 10 * heartbeat_ms_);
    } else if (attempt.stop_sent) {
      pulse.phase = attempt.survivors.empty()
                        ? "ending"
                        : clip_utf8("ending: " + attempt.survivors, wire::name_bytes_max);
    }
    beat.attempts.push_back(std::move(pulse));
  }
  send(std::move(beat));
}

void Agent::on_terminate(const std::string& reason, std::int64_t now_ms) {
  if (is_terminating()) return;
  terminating_ = reason.empty() ? "asked to end" : reason;
  log("terminating", {{"reason", terminating_}});
  for (auto& [ref, attempt] : attempts_) {
    if (attempt.state == State::running || attempt.state == State::preparing) {
      ask_to_stop(attempt, {ref, Outcome::lost, "the worker was ended: " + terminating_});
    }
  }
  watch_end(now_ms);
}

void Agent::watch_end(std::int64_t now_ms) {
  if (!running().empty() || exit_said_) return;
  if (exit_ms_ == 0) exit_ms_ = now_ms + options_.goodbye_ms;
  const bool can_wait = welcomed_ && !attempts_.empty();
  if (can_wait && now_ms < exit_ms_) return;
  exit_said_ = true;
  act(ExitWorker{});
}

std::int64_t Agent::next_tick_ms(std::int64_t now_ms) const {
  std::int64_t next = now_ms + 1'000;
  if (welcomed_) next = std::min(next, next_heartbeat_ms_);
  if (is_terminating()) next = std::min(next, now_ms + 50);
  return std::max(next, now_ms);
}

}  // namespace nightshift
