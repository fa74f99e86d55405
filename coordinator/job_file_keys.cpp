#include "coordinator/job_file_keys.h"

#include <algorithm>

namespace nightshift {

const std::map<std::string, std::vector<std::string>>& job_file_sections() {
  static const std::map<std::string, std::vector<std::string>> sections = {
      {"job",
       {"name", "model", "night", "bench", "red_lines", "evaluation", "stages", "watchdog", "retry",
        "notify", "resources", "priority"}},
      {"model", {"path"}},
      {"night", {"start", "deadline", "zone"}},
      {"bench", {"batch", "input_tokens", "output_tokens", "warmup", "repeats"}},
      {"red_lines",
       {"throughput_tok_s", "ttft_ms", "tpot_ms", "peak_memory", "accuracy_drop", "token_match"}},
      {"evaluation", {"tasks", "heldout", "groups"}},
      {"watchdog", {"interval", "log_silence", "min_disk_free", "memory", "mode"}},
      {"watchdog_memory", {"max", "max_growth", "min_free"}},
      {"retry", {"max", "backoff"}},
      {"notify", {"on", "webhook", "command", "email"}},
      {"email", {"to", "smtp"}},
      {"resources", {"gpu", "exclusive", "memory", "cores", "labels", "temp"}},
      {"stage",
       {"kind", "needs", "matrix", "foreach", "model", "wall_limit", "expected", "retry",
        "resources"}},
      {"baseline", {"tasks", "heldout", "groups"}},
      {"calibrate", {"data", "samples", "max_tokens", "batch", "steps", "percentile"}},
      {"quantize", {"scheme", "prefer", "keep", "override", "activations", "deviation_limit"}},
      {"fuse",
       {"ignore", "same_precision_only", "rules", "prompts", "token_match_prompts",
        "token_match_tokens"}},
      {"evaluate", {"tasks", "heldout", "groups", "repair"}},
      {"repair", {"rounds", "from"}},
      {"soak", {"requests", "concurrency", "input_tokens", "output_tokens", "timeout", "data"}},
      {"run", {"command", "environment", "checkpoint", "inputs"}},
  };
  return sections;
}

const std::vector<std::string>& job_file_keys(const std::string& section) {
  return job_file_sections().at(section);
}

std::vector<std::string> stage_keys_of(const std::string& kind) {
  std::vector<std::string> keys = job_file_keys("stage");
  const std::vector<std::string>& more = job_file_keys(kind);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

const std::vector<std::string>& stage_kinds() {
  static const std::vector<std::string> kinds = {"baseline", "calibrate", "quantize", "fuse",
                                                 "evaluate", "soak",      "run"};
  return kinds;
}

const std::vector<std::string>& unbuilt_stage_kinds() {
  static const std::vector<std::string> kinds = {"profile", "sensitivity", "plan",
                                                 "prune",   "distil",      "export"};
  return kinds;
}

std::string usual_need_of(const std::string& kind) {
  const std::vector<std::string>& kinds = stage_kinds();
  const auto it = std::find(kinds.begin(), kinds.end(), kind);
  if (it == kinds.begin() || it == kinds.end() || kind == "run") return "";
  return *(it - 1);
}

}  // namespace nightshift
