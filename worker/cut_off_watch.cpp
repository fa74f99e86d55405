#include "worker/cut_off_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace nightshift {

Verdict judge_alone(const AttemptPulse& pulse, const DiskSample& disk, const WatchdogSpec& spec,
                    std::int64_t wall_limit_ms) {
  // A wall limit is part of the order, whatever the mode.
  if (wall_limit_ms > 0 && pulse.elapsed_ms > wall_limit_ms) {
    return {Outcome::timeout, fmt::format("ran {} s, its limit is {} s", pulse.elapsed_ms / 1000,
                                          wall_limit_ms / 1000)};
  }
  if (spec.mode != WatchdogMode::act) return {};
  if (spec.memory_max_bytes > 0 && pulse.memory_bytes > spec.memory_max_bytes) {
    return {Outcome::oom, fmt::format("its processes use {} MiB, the limit is {} MiB",
                                      pulse.memory_bytes >> 20, spec.memory_max_bytes >> 20)};
  }
  for (const auto& [name, free] : {std::pair{"checkpoint store", disk.root_free_bytes},
                                   std::pair{"temporary folder", disk.temp_free_bytes}}) {
    if (free && *free < spec.min_disk_free_bytes) {
      return {Outcome::disk, fmt::format("{} MiB are free for the {}, the limit is {} MiB",
                                         *free >> 20, name, spec.min_disk_free_bytes >> 20)};
    }
  }
  const std::int64_t silence_ms = std::min(pulse.progress_age_ms, pulse.log_age_ms);
  if (spec.log_silence_ms > 0 && pulse.quiet_left_ms == 0 && silence_ms > spec.log_silence_ms) {
    return {Outcome::hung, fmt::format("neither progress nor log for {} s, the limit is {} s",
                                       silence_ms / 1000, spec.log_silence_ms / 1000)};
  }
  return {};
}

std::optional<Verdict> CutOffWatch::on_look(const Verdict& verdict) {
  bad_ = verdict.outcome == Outcome::ok ? 0 : verdict.outcome == last_ ? bad_ + 1 : 1;
  last_ = verdict.outcome;
  if (bad_ < looks) return std::nullopt;
  bad_ = 0;
  return verdict;
}

}  // namespace nightshift
