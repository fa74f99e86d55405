// The agent's half that follows processes and folders; agent.cpp has the one that follows messages.
#include <algorithm>

#include "worker/agent.h"

namespace nightshift {

void Agent::on_stage_started(const AttemptRef& ref, std::int64_t pid, const std::string& log_path,
                             std::int64_t now_ms) {
  Attempt* attempt = find(ref);
  if (attempt == nullptr || !is_unfinished(*attempt)) return;
  attempt->state = State::running;
  attempt->pid = pid;
  attempt->log_path = log_path;
  attempt->record.on_started(now_ms);
  log("stage_started", {{"attempt", to_string(ref)}, {"pid", std::to_string(pid)}});
  report(*attempt);
  if (attempt->stop) ask_to_stop(*attempt, *attempt->stop);  // it came while preparing
}

void Agent::on_prepare_failed(const AttemptRef& ref, const Error& error, std::int64_t now_ms) {
  Attempt* attempt = find(ref);
  if (attempt == nullptr) return;
  log("prepare_failed", {{"attempt", to_string(ref)}, {"error", error.line()}});
  if (error.code == ErrorCode::out_of_disk || attempt->stop) {
    attempt->record.on_not_started(error);
    on_tree_empty(ref, 0, now_ms);
    return;
  }
  attempts_.erase(ref);
  send(AssignRefused{ref, error.line(), false, ""});
}

void Agent::on_not_started(const AttemptRef& ref, const Error& error) {
  if (Attempt* attempt = find(ref)) attempt->record.on_not_started(error);
}

void Agent::on_report_line(const AttemptRef& ref, const std::string& line, std::int64_t now_ms) {
  Attempt* attempt = find(ref);
  if (attempt != nullptr && is_unfinished(*attempt)) attempt->record.on_report_line(line, now_ms);
}

void Agent::on_process_note(const AttemptRef& ref, const std::string& text) {
  Attempt* attempt = find(ref);
  if (attempt == nullptr || !is_unfinished(*attempt)) return;
  attempt->survivors = text;
  attempt->record.add_note(text);
  log("process_note", {{"attempt", to_string(ref)}, {"text", text}});
}

void Agent::on_stage_exited(const AttemptRef& ref, const StageExit& exit) {
  Attempt* attempt = find(ref);
  if (attempt == nullptr || !is_unfinished(*attempt)) return;
  attempt->record.on_exit(exit);
  log("stage_exited", {{"attempt", to_string(ref)},
                       {"exit_code", std::to_string(exit.exit_code)},
                       {"signal", std::to_string(exit.signal)}});
}

void Agent::on_tree_empty(const AttemptRef& ref, std::int64_t lines_dropped, std::int64_t now_ms) {
  Attempt* attempt = find(ref);
  if (attempt == nullptr || attempt->state == State::sealing || !is_unfinished(*attempt)) return;
  attempt->state = State::sealing;
  act(FinishAttempt{attempt->record.draft(attempt->stop, lines_dropped, now_ms)});
}

void Agent::on_result_stored(const AttemptFinished& result) {
  Attempt* attempt = find(result.ref);
  if (attempt == nullptr || attempt->state != State::sealing) return;
  attempt->state = State::finished;
  attempt->result = result;
  log("attempt_finished", {{"attempt", to_string(result.ref)},
                           {"outcome", to_string(result.outcome)},
                           {"reason", result.reason},
                           {"ms", std::to_string(result.elapsed_ms)}});
  report(*attempt);
}

void Agent::on_committed(const AttemptRef& ref, const Status& status) {
  if (Attempt* attempt = find(ref); attempt != nullptr && attempt->state == State::finished) {
    attempt->committing = false;
    attempt->result.committed = attempt->result.committed || status.ok();
  }
  log("checkpoint_committed", {{"attempt", to_string(ref)},
                               {"ok", status ? "true" : "false"},
                               {"error", status ? "" : status.error().line()}});
  send(CheckpointCommitted{ref, status.ok(), status ? "" : status.error().line()});
}

void Agent::on_log_read(const LogChunk& chunk) {
  send(chunk);
}

void Agent::on_sample(const AttemptRef& ref, const AttemptSample& sample, std::int64_t now_ms) {
  Attempt* attempt = find(ref);
  if (attempt != nullptr && is_unfinished(*attempt)) attempt->record.on_sample(sample, now_ms);
}

}  // namespace nightshift
