// The contract between a worker and a stage process, built-in or `run:` alike. Knows words and JSON
// lines only; must not know processes, sockets or models.
//
// The worker makes attempts/JOB/STAGE/N/ with
//   spec.json   what to do (StageOrder below)
//   out/        what the stage leaves; becomes the checkpoint when it exits 0
//   state/      partial work, handed on from one attempt to the next of the same stage
//   log         stdout and stderr of the process, never overwritten
// and starts the process with the variables below. On the report descriptor the stage writes one
// JSON object a line (Report). Exit codes: schema/outcome.h.
//
// out/ of a built-in stage is a complete checkpoint: config.json, tokenizer.json, *.safetensors,
// nightshift.json; the worker adds manifest.json (XXH3-128 of every file) and the coordinator
// decides when it is renamed to checkpoints/JOB/STAGE.N/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schema/job_spec.h"
#include "schema/result.h"

namespace nightshift {

namespace contract {
inline constexpr const char* env_spec = "NIGHTSHIFT_SPEC";             // path of spec.json
inline constexpr const char* env_out = "NIGHTSHIFT_OUT";
inline constexpr const char* env_state = "NIGHTSHIFT_STATE";
inline constexpr const char* env_input_prefix =
    "NIGHTSHIFT_INPUT_";  // + STAGE upper-cased, non-alnum -> _
inline constexpr const char* env_attempt = "NIGHTSHIFT_ATTEMPT";
inline constexpr const char* env_report_fd = "NIGHTSHIFT_REPORT_FD";
// Why there is an attempt after the first.
inline constexpr const char* env_retry_reason = "NIGHTSHIFT_RETRY_REASON";
inline constexpr std::size_t report_line_bytes_max = 64 * 1024;
}  // namespace contract

// spec.json.
struct StageOrder {
  std::int64_t job = 0;
  std::string job_name;
  std::string stage;
  std::string kind;
  int attempt = 1;
  std::string model_path;
  BenchSpec bench;
  RedLines red_lines;
  std::string params_json = "{}";
  std::vector<std::string> needs;              // direct inputs; the first one is the model's line
  std::map<std::string, std::string> inputs;   // every ancestor -> folder of its checkpoint
};
std::string to_json_text(const StageOrder& order);
Result<StageOrder> stage_order_from_json(std::string_view text, const std::string& where);

// ---- Report lines ---------------------------------------------------------------------------
struct ProgressReport {
  std::int64_t done = 0;
  std::int64_t of = 0;         // 0: unknown
  std::string unit;            // "samples", "layers", "requests"
  double rate = 0;             // per second, of `rate_unit`; 0: not given
  std::string rate_unit;       // "tok/s"
};
// One measured number. `group` is the task group or held-out set where there is one. `model` is the
// digest of the model it was measured on: rows with the same digest share their numbers.
struct MetricReport {
  std::string name;
  double value = 0;            // finite
  std::string unit;
  std::string group;
  std::string model;
};
// The stage says what it does now, and for how long it may be silent (0: not at all).
struct PhaseReport {
  std::string name;
  double quiet_s = 0;
};
// Partial state was written: a killed attempt goes on from here.
struct CheckpointReport {
  std::string name;
  std::int64_t done = 0;
};
struct RedLineReport {
  RedLineResult result;
};
// A line for people that belongs into the report ("layer 5 attention put back to 16 bits: ...").
struct NoteReport {
  std::string text;
};
// Why the stage ends without success; the last line before exit codes 3 and 4.
struct ErrorReport {
  std::string what;
  std::string where;
  std::string hint;
};
using Report = std::variant<ProgressReport, MetricReport, PhaseReport, CheckpointReport,
                            RedLineReport, NoteReport, ErrorReport>;

// One line without the newline: {"progress":{...}}, {"metric":{...}}, {"phase":{...}},
// {"checkpoint":{...}}, {"red_line":{...}}, {"note":{...}}, {"error":{...}}.
std::string to_line(const Report& report);
// A malformed line is an error that names what is wrong; never a reason to kill a stage.
Result<Report> parse_report(std::string_view line);

// manifest.json of a checkpoint: every regular file, relative path -> size and XXH3-128.
struct ManifestEntry {
  std::string path;
  std::int64_t bytes = 0;
  std::string hash;
};
struct Manifest {
  std::vector<ManifestEntry> files;   // sorted by path
  std::string digest() const;         // over paths, sizes and hashes
  std::int64_t total_bytes() const;
};
std::string to_json_text(const Manifest& manifest);
Result<Manifest> manifest_from_json(std::string_view text, const std::string& where);

}  // namespace nightshift
