// Red lines: limits that measurements must respect, and the one place that compares them.
// Knows only the standard library and Result; used by the stages that measure and by the report.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace nightshift {

// A limit on one number: ">= 1600", "<= 120 ms", ">= 3.0x" (of the baseline), "<= 20GiB", "<= 2%".
struct Limit {
  enum class Side { at_least, at_most };
  Side side = Side::at_least;
  double value = 0;
  bool relative = false;      // value is a factor on the baseline's number
  std::string text;           // as written, for people
};

// `unit` says what a bare or suffixed number means: "tok/s", "ms", "bytes" (KiB/MiB/GiB/KB/MB/GB),
// "fraction" (2% or 0.02). An `x` suffix makes it relative.
Result<Limit> parse_limit(std::string_view text, std::string_view unit);

struct RedLines {
  std::optional<Limit> throughput_tok_s;
  std::optional<Limit> ttft_ms;
  std::optional<Limit> tpot_ms;
  std::optional<Limit> peak_memory_bytes;
  std::optional<Limit> token_match;             // fraction
  // Largest allowed loss of accuracy against the 16-bit model, as a fraction of the baseline's
  // accuracy (2% of .50 is .01), by class of task groups ("target", "general").
  std::map<std::string, double> accuracy_drop;
};

// What was measured of one checkpoint; absent numbers were not measured.
struct Measurement {
  std::optional<double> throughput_tok_s;   // P: generated tokens a second at batch x in -> out
  std::optional<double> ttft_ms;            // D: request entering the engine -> first token
  std::optional<double> tpot_ms;            // time per output token, one request
  std::optional<double> peak_memory_bytes;  // the engine's own allocations at P
  std::optional<double> size_bytes;         // weights on disk
  std::optional<double> token_match;        // against the unfused model, same prompts and seed
  std::optional<double> ops;                // operations in the graph of one step
  std::optional<double> launches;           // kernel calls of one decode step
  std::map<std::string, double> accuracy;   // by task group, and "all"
  std::map<std::string, double> perplexity; // by held-out set, and "all"
};

struct RedLineResult {
  std::string name;        // "throughput_tok_s", "accuracy_drop.target", ...
  std::string limit;       // as written
  double limit_value = 0;  // absolute, after applying the baseline
  double measured = 0;
  bool at_least = true;
  bool pass = false;
  std::string detail;      // what it was computed from, one line
};

// Compares in a fixed order; a line whose number is missing is a breach with the reason in detail.
// `groups` maps a class ("target") to its task groups; its accuracy is their mean.
std::vector<RedLineResult> check_red_lines(
    const RedLines& lines, const Measurement& baseline, const Measurement& measured,
    const std::map<std::string, std::vector<std::string>>& groups);

}  // namespace nightshift
