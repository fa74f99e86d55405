// A job as the coordinator understands it: the job file after parsing, with units resolved.
// Knows only the standard library and Result; not YAML (coordinator/job_file.h reads that).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/red_line.h"
#include "schema/result.h"

namespace nightshift {

// What `bench:` asks: batch x input -> output tokens. At least 5 warm-ups are left out of the
// figures; the figure is the median of the repeats.
struct BenchSpec {
  int batch = 32;
  int input_tokens = 512;
  int output_tokens = 128;
  int warmup = 5;
  int repeats = 9;
};

// What a stage needs of a worker. 0 = does not matter.
struct ResourceSpec {
  int gpu = 0;                       // whole devices
  int gpu_share_percent = 0;         // or this much of one device, others may have the rest
  std::int64_t memory_bytes = 0;
  int cores = 0;
  bool exclusive = false;            // nothing else runs on the worker meanwhile
  std::vector<std::string> labels;   // the worker must have all of them
  std::string temp;                  // TMPDIR for stages; empty: the worker's own
};

enum class WatchdogMode { log, warn, act };

struct WatchdogSpec {
  std::int64_t interval_ms = 5 * 60 * 1000;
  std::int64_t log_silence_ms = 10 * 60 * 1000;
  std::int64_t min_disk_free_bytes = 0;
  std::int64_t memory_max_bytes = 0;      // 0: no limit
  WatchdogMode mode = WatchdogMode::act;
};

struct RetrySpec {
  int max = 2;                       // retries after the first attempt, for each outcome class
  std::int64_t backoff_ms = 30 * 1000;
};

// "Start not before, end not after", in wall time of a zone; empty: any time.
struct NightSpec {
  std::string start;      // "22:00"
  std::string deadline;   // "07:00"
  std::string zone;       // IANA name, "Asia/Shanghai"
};

struct NotifySpec {
  std::vector<std::string> on;       // done, failed, cancelled, red_line, retry
  std::string webhook;
  std::string command;
  std::string email_to;
  std::string email_smtp;
};

// Built-in kinds are named like the stage: baseline, calibrate, quantize, fuse, evaluate, soak.
// `run` is any command under the same contract.
struct StageSpec {
  std::string name;
  std::string kind;
  std::string group;  // the matrix stage of the file that it was made of
  std::vector<std::string> needs;
  // Parameters of the kind, as JSON with units resolved (durations in ms, sizes in bytes,
  // percentages as fractions, paths absolute). What `nightshift-stage` reads.
  std::string params_json = "{}";
  // Files and folders that the stage reads, absolute: their content is part of its key.
  std::vector<std::string> inputs;
  std::map<std::string, std::string> input_digests;   // path -> content hash, made when submitting
  std::string model_path;                             // absolute; empty: the job's
  std::string model_digest;                           // of model_path, made when submitting
  std::vector<std::string> command;       // kind run: argv
  std::map<std::string, std::string> environment;   // kind run
  std::int64_t wall_limit_ms = 0;         // 0: none
  std::int64_t expected_ms = 0;           // 0: unknown; used against the deadline
  ResourceSpec resources;
  RetrySpec retry;
};

struct JobSpec {
  std::string name;
  std::string source_path;                // absolute path of the job file, for messages
  std::string model_path;                 // absolute
  std::string model_digest;               // content hash of the folder, made when submitting
  BenchSpec bench;
  RedLines red_lines;
  NightSpec night;
  WatchdogSpec watchdog;
  RetrySpec retry;
  ResourceSpec resources;
  std::vector<NotifySpec> notify;
  int priority = 0;
  std::vector<StageSpec> stages;          // in an order in which needs come first
};

const std::string& model_path_of(const JobSpec& job, const StageSpec& stage);
const std::string& model_digest_of(const JobSpec& job, const StageSpec& stage);

// Lossless, canonical (sorted keys): what submit sends and the store keeps.
std::string to_json_text(const JobSpec& spec);
// Checks bounds, unique stage names, that needs exist and come earlier: a peer may have sent it.
Result<JobSpec> job_spec_from_json(std::string_view text, const std::string& where);

// Same wording everywhere: distance-limited suggestion, empty when nothing is near.
// ("qunatize", {"quantize","fuse"}) -> "quantize".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace nightshift
