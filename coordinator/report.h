// The numbers of a night out of a JobView: one row for each checkpoint, against the baseline, and
// whether the red lines hold. Pure. Knows views and metrics by name; must not know terminals (see
// report_table.h) or files.
//
// Whose number is it? A metric belongs to the model it was measured on (MetricReport::model, a
// digest), not to the stage that measured it: calibrate leaves the 16-bit model as it is, so its
// row shows what baseline measured; evaluate measures the fused model and the 16-bit one, and each
// number goes to the rows of that model. A stage says which model its checkpoint is with a metric
// {"name":"model","value":1,"model":DIGEST}. A metric without a digest belongs to its stage's row.
//
// report.json, version 1 (a number that was not measured is null; times are ms):
//   version 1, job, name, user, state, verdict ("pass" | "red_line" | "failed" | "cancelled" |
//   "unfinished"), verdict_text, model_path, job_file, submitted_ms, ended_ms,
//   baseline (stage name or null), result (the last checkpoint: {stage, path} or null),
//   checkpoints [{stage, kind, attempt, reused, model, checkpoint, throughput_tok_s, ttft_ms,
//     tpot_ms, peak_memory_bytes, size_bytes, token_match, ops, launches, accuracy {group: n},
//     perplexity {group: n}, ratio {throughput_tok_s, ..., "accuracy.GROUP", "perplexity.GROUP"}}],
//   red_lines [{stage, name, limit, limit_value, measured, at_least, pass, detail}],
//   stages [{stage, kind, outcome (its state), reuse_reason, attempts [{attempt, worker, outcome,
//     reason, started_ms, ended_ms, elapsed_ms}], elapsed_ms}],
//   metrics [{stage, name, value, unit, group, model}] (those that have no column),
//   notes [{stage, text}]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schema/job_view.h"
#include "schema/json_fwd.h"
#include "schema/red_line.h"

namespace nightshift {

// red_line: everything ran, but a limit is crossed. failed: something did not run to its end.
enum class Verdict { pass, red_line, failed, cancelled, unfinished };
const char* to_string(Verdict verdict);
// 0 pass, 3 red line, 1 else: what `run`, `resume` and `report` exit with.
int exit_code_of(Verdict verdict);

struct ReportRow {
  std::string stage;
  std::string kind;
  int attempt = 0;
  bool reused = false;
  std::string model;              // digest; empty: the stage did not say
  std::string checkpoint_path;
  Measurement numbers;
};

struct ReportRedLine {
  std::string stage;
  RedLineResult result;
};

struct ReportStage {
  std::string name;
  std::string kind;
  StageState state = StageState::waiting;
  std::string reuse_reason;
  std::vector<AttemptView> attempts;
  std::int64_t elapsed_ms = 0;    // of all attempts
};

struct ReportMetric {
  std::string stage;
  MetricReport metric;
};

struct ReportNote {
  std::string stage;
  std::string text;
};

struct JobReport {
  JobId job;
  std::string name;
  std::string user;
  std::string model_path;
  std::string job_file;
  JobState state = JobState::active;
  std::int64_t submitted_ms = 0;
  std::int64_t ended_ms = 0;
  Verdict verdict = Verdict::unfinished;
  std::string verdict_text;
  std::vector<ReportRow> rows;                  // in plan order
  std::optional<std::size_t> baseline;          // into rows
  std::vector<ReportRedLine> red_lines;
  std::vector<ReportStage> stages;
  std::vector<ReportMetric> metrics;            // without a column
  std::vector<ReportNote> notes;

  // The last checkpoint in plan order; null when there is none.
  const ReportRow* result() const;
};

JobReport make_report(const JobView& view);

// One number of a row under its stable key ("ttft_ms", "accuracy.code").
struct ReportColumn {
  std::string key;
  std::string title;              // "D (TTFT) ms"
};
// The columns that at least one row fills, in a fixed order; groups by name, "all" last.
std::vector<ReportColumn> report_columns(const JobReport& report);
std::optional<double> column_value(const ReportRow& row, const std::string& key);
// Against the baseline's number; nullopt when either is missing or the baseline's is 0.
std::optional<double> column_ratio(const JobReport& report, const ReportRow& row,
                                   const std::string& key);

Json to_json(const JobReport& report);
// RFC 4180: a header line, then one line a checkpoint.
std::string to_csv(const JobReport& report);

}  // namespace nightshift
