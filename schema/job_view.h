// What `status`, `workers` and `report` show: the coordinator fills these, the CLI draws them, and
// `--json` prints them. Knows ids and states; must not know how either side works.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schema/ids.h"
#include "schema/messages.h"
#include "schema/outcome.h"
#include "schema/red_line.h"
#include "schema/stage_state.h"

namespace nightshift {

// Times are wall time in ms since 1970 (0: not yet); ages and durations come from monotonic clocks.
struct AttemptView {
  int attempt = 0;
  std::string worker;
  std::optional<Outcome> outcome;     // none: still held by its worker
  std::string reason;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t elapsed_ms = 0;
  std::string log_tail;
};

struct StageView {
  std::string name;
  std::string kind;
  StageState state = StageState::waiting;
  int attempt = 0;                    // the current or last one; 0: never ran
  std::vector<std::string> needs;
  std::string worker;
  std::string waiting_reason;         // why it does not run now; empty when it does or is final
  std::string reuse_reason;           // reused: from which job and attempt
  std::optional<AttemptPulse> pulse;  // running: the last one
  std::int64_t pulse_age_ms = 0;
  std::string checkpoint_path;        // done or reused
  std::string checkpoint_digest;
  std::int64_t checkpoint_bytes = 0;
  std::vector<AttemptView> attempts;
  std::vector<MetricReport> metrics;
  std::vector<RedLineResult> red_lines;
  std::vector<std::string> notes;
  std::string group;                  // the matrix stage of the file that it was made of
};

struct EventView {
  std::int64_t at_ms = 0;
  std::string text;                   // event=stage_done stage=quantize attempt=1 ...
};

struct JobView {
  JobId job;
  std::string name;
  std::string user;
  JobState state = JobState::active;
  std::string model_path;
  std::string source_path;
  std::int64_t submitted_ms = 0;
  std::int64_t ended_ms = 0;
  std::vector<StageView> stages;
  std::vector<EventView> events;      // the last ones, oldest first
};

struct WorkerView {
  std::string name;
  std::string host;
  std::int64_t pid = 0;
  std::string state;                  // "online", "silent", "lost"
  std::int64_t last_word_ms = 0;      // age
  WorkerResources resources;
  std::vector<std::string> running;   // "3/quantize#1"
  std::int64_t disk_free_bytes = -1;
};

// One stage of `resume --plan`: what would happen, and why.
struct ResumeStep {
  std::string stage;
  bool rerun = false;
  std::string reason;
};

Json to_json(const JobView& view);
Json to_json(const WorkerView& view);
Json to_json(const ResumeStep& step);
Result<JobView> job_view_from_json(const Json& json);
Result<WorkerView> worker_view_from_json(const Json& json);
Result<ResumeStep> resume_step_from_json(const Json& json);

}  // namespace nightshift
