// What the worker knows of one attempt while it runs: its report lines, its samples, how it ended.
// Pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schema/messages.h"
#include "schema/result.h"

namespace nightshift {

inline constexpr std::size_t metrics_max = 20'000;
inline constexpr std::size_t notes_max = 1'000;
// Of all lines that are kept: the result must fit into one message.
inline constexpr std::size_t kept_bytes_max = 16 << 20;

// One look at a running attempt; what could not be seen is absent.
struct AttemptSample {
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> log_bytes;
};

struct StageExit {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  bool oom_killed = false;  // the kernel counted an OOM kill while it ran
};

class AttemptRecord {
 public:
  AttemptRecord(AttemptRef ref, std::int64_t now_ms);

  void on_started(std::int64_t now_ms);
  // A malformed line is counted and shown as a note, never more.
  void on_report_line(const std::string& line, std::int64_t now_ms);
  void on_sample(const AttemptSample& sample, std::int64_t now_ms);
  void on_exit(const StageExit& exit) { exit_ = exit; }
  void on_not_started(Error error) { not_started_ = std::move(error); }
  void add_note(const std::string& text);

  AttemptPulse pulse(std::int64_t now_ms) const;
  // How it ended. `stop`: the end was asked for, and that is its class and reason.
  AttemptFinished draft(const std::optional<StopAttempt>& stop, std::int64_t lines_dropped,
                        std::int64_t now_ms) const;
  std::int64_t reports_malformed() const { return malformed_; }

 private:
  struct Taker;
  void judge(AttemptFinished& result) const;

  AttemptRef ref_;
  std::int64_t begun_ms_;
  std::int64_t progress_ms_;
  std::int64_t log_ms_;
  std::int64_t log_bytes_ = 0;
  std::int64_t memory_bytes_ = 0;
  std::int64_t peak_memory_bytes_ = 0;
  std::string phase_;
  std::int64_t quiet_until_ms_ = 0;
  std::optional<ProgressReport> progress_;
  std::vector<MetricReport> metrics_;
  std::vector<RedLineResult> red_lines_;
  std::vector<std::string> notes_;
  std::optional<ErrorReport> error_;
  std::optional<StageExit> exit_;
  std::optional<Error> not_started_;
  std::int64_t malformed_ = 0;
  std::string first_malformed_;
  std::size_t kept_bytes_ = 0;
  std::int64_t left_out_ = 0;  // metrics and notes beyond the bounds
};

}  // namespace nightshift
