#include "worker/attempt_record.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

namespace nightshift {

AttemptRecord::AttemptRecord(AttemptRef ref, std::int64_t now_ms)
    : ref_(std::move(ref)), begun_ms_(now_ms), progress_ms_(now_ms), log_ms_(now_ms) {}

void AttemptRecord::on_started(std::int64_t now_ms) {
  begun_ms_ = progress_ms_ = log_ms_ = now_ms;
}

void AttemptRecord::add_note(const std::string& text) {
  if (notes_.size() < notes_max) {
    notes_.push_back(text);
  } else {
    ++left_out_;
  }
}

struct AttemptRecord::Taker {
  AttemptRecord& record;
  std::int64_t now_ms;
  std::size_t line_bytes;

  // Whether the line still has room; counted when it has none.
  bool keep(std::size_t count, std::size_t count_max) const {
    if (count < count_max && record.kept_bytes_ + line_bytes <= kept_bytes_max) {
      record.kept_bytes_ += line_bytes;
      return true;
    }
    ++record.left_out_;
    return false;
  }

  void operator()(ProgressReport& report) const {
    record.progress_ms_ = now_ms;
    record.progress_ = std::move(report);
  }
  void operator()(MetricReport& report) const {
    if (keep(record.metrics_.size(), metrics_max)) record.metrics_.push_back(std::move(report));
  }
  void operator()(PhaseReport& report) const {
    record.progress_ms_ = now_ms;
    record.phase_ = std::move(report.name);
    const double quiet_ms = std::clamp(report.quiet_s, 0.0, 7.0 * 86400) * 1000;
    record.quiet_until_ms_ = now_ms + static_cast<std::int64_t>(quiet_ms);
  }
  void operator()(CheckpointReport&) const { record.progress_ms_ = now_ms; }
  void operator()(RedLineReport& report) const {
    if (keep(record.red_lines_.size(), notes_max)) {
      record.red_lines_.push_back(std::move(report.result));
    }
  }
  void operator()(NoteReport& report) const {
    if (keep(record.notes_.size(), notes_max)) record.notes_.push_back(std::move(report.text));
  }
  void operator()(ErrorReport& report) const { record.error_ = std::move(report); }
};

void AttemptRecord::on_report_line(const std::string& line, std::int64_t now_ms) {
  Result<Report> report = parse_report(line);
  if (report) {
    std::visit(Taker{*this, now_ms, line.size()}, *report);
    return;
  }
  if (malformed_++ == 0) first_malformed_ = report.error().line();
}

void AttemptRecord::on_sample(const AttemptSample& sample, std::int64_t now_ms) {
  if (sample.memory_bytes) {
    memory_bytes_ = *sample.memory_bytes;
    peak_memory_bytes_ = std::max(peak_memory_bytes_, memory_bytes_);
  }
  if (sample.log_bytes && *sample.log_bytes != log_bytes_) {
    log_bytes_ = *sample.log_bytes;
    log_ms_ = now_ms;
  }
}

AttemptPulse AttemptRecord::pulse(std::int64_t now_ms) const {
  AttemptPulse pulse;
  pulse.ref = ref_;
  pulse.log_bytes = log_bytes_;
  pulse.memory_bytes = memory_bytes_;
  pulse.progress_age_ms = now_ms - progress_ms_;
  pulse.log_age_ms = now_ms - log_ms_;
  pulse.elapsed_ms = now_ms - begun_ms_;
  pulse.phase = phase_;
  pulse.quiet_left_ms = std::max<std::int64_t>(0, quiet_until_ms_ - now_ms);
  pulse.progress = progress_;
  return pulse;
}

namespace {
std::string red_line_reason(const std::vector<RedLineResult>& lines) {
  std::string text;
  for (const RedLineResult& line : lines) {
    if (line.pass) continue;
    text += text.empty() ? "red line crossed: " : ", ";
    text += fmt::format("{} is {:.6g}, limit {}", line.name, line.measured, line.limit);
  }
  return text.empty() ? "a red line is crossed (exit code 3)" : text;
}
}  // namespace

// By the exit status; the stage's own words are the reason where it has some.
void AttemptRecord::judge(AttemptFinished& result) const {
  if (not_started_) {
    result.reason = not_started_->line();
    const ErrorCode code = not_started_->code;
    result.outcome = code == ErrorCode::out_of_memory ? Outcome::oom
                     : code == ErrorCode::out_of_disk ? Outcome::disk
                                                      : Outcome::error;
    return;
  }
  const StageExit exit = exit_.value_or(StageExit{});
  std::string reason;
  if (exit.exit_code >= 0) {
    result.outcome = outcome_of_exit(exit.exit_code);
    reason = fmt::format("exit code {}", exit.exit_code);
  } else {
    result.outcome = outcome_of_signal(exit.signal, exit.oom_killed);
    reason = exit.oom_killed
                 ? "killed by the kernel: out of memory"
                 : fmt::format("ended by signal {} ({})", exit.signal, ::strsignal(exit.signal));
  }
  if (result.outcome == Outcome::ok) return;
  if (error_) reason = Error{ErrorCode::internal, error_->what, error_->where, error_->hint}.line();
  if (result.outcome == Outcome::red_line && !error_) reason = red_line_reason(red_lines_);
  result.reason = reason;
}

AttemptFinished AttemptRecord::draft(const std::optional<StopAttempt>& stop,
                                     std::int64_t lines_dropped, std::int64_t now_ms) const {
  AttemptFinished result;
  result.ref = ref_;
  if (exit_) {
    result.exit_code = exit_->exit_code;
    result.signal = exit_->signal;
  }
  judge(result);
  if (stop) {
    result.outcome = stop->outcome == Outcome::ok ? Outcome::cancelled : stop->outcome;
    result.reason = stop->reason;
  }
  result.elapsed_ms = now_ms - begun_ms_;
  result.peak_memory_bytes = peak_memory_bytes_;
  result.metrics = metrics_;
  result.red_lines = red_lines_;
  result.notes = notes_;
  if (malformed_ > 0) {
    result.notes.push_back(fmt::format("{} report line(s) were malformed; the first: {}",
                                       malformed_, first_malformed_));
  }
  if (lines_dropped > 0) {
    result.notes.push_back(fmt::format("{} report line(s) longer than {} bytes were dropped",
                                       lines_dropped, contract::report_line_bytes_max));
  }
  if (left_out_ > 0) {
    result.notes.push_back(
        fmt::format("{} report lines beyond the bounds were left out", left_out_));
  }
  return result;
}

}  // namespace nightshift
