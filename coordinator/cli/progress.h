// A job on the terminal while it runs: a block that is redrawn, or lines for a log. Pure: a view
// and the time in, lines out. Knows views; must not know where they come from or go.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "schema/job_view.h"

namespace nightshift::cli {

struct ProgressStyle {
  std::size_t columns = 100;
  std::size_t lines_max = 0;      // 0: no limit; else the least telling stages are left out
  bool colour = false;
  bool all = false;               // every stage of a large matrix has its own line
};

// "64/128 samples 50%", "64 samples", "" when the stage told nothing yet.
std::string progress_text(const AttemptPulse& pulse);

// "[… 3.2 GiB left out: --log-limit …]", in the place of the bytes.
std::string log_left_out_line(std::int64_t bytes);

// A headline and one line a stage, or one for all of a large matrix and those of its stages that
// tell most; none wider than style.columns.
std::vector<std::string> render_job(const JobView& view, std::int64_t wall_ms,
                                    const ProgressStyle& style);

// For pipes and log files: a line for each change, and every few seconds one for each stage that
// runs and has moved. Given every view in turn; remembers what it has said.
class PlainProgress {
 public:
  explicit PlainProgress(std::int64_t every_ms = 5'000) : every_ms_(every_ms) {}
  std::vector<std::string> lines(const JobView& view, Now now);

 private:
  struct Said {
    StageState state = StageState::waiting;
    std::size_t attempts_ended = 0;
    std::size_t notes = 0;
    std::string progress;
    std::string waiting;             // without its digits
    std::int64_t progress_mono_ms = INT64_MIN / 2;
  };
  void stage_lines(const StageView& stage, Now now, std::vector<std::string>& out);
  std::int64_t every_ms_;
  std::map<std::string, Said> said_;
};

}  // namespace nightshift::cli
