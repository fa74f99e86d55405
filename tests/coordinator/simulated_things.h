// What a simulated night is made of: its options, its dice and clock, its jobs.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/coordinator/reactor_world.h"

namespace nightshift::testing {

struct NightOptions {
  std::uint64_t seed = 1;
  int workers = 3;
  int jobs = 3;
  std::int64_t faults_ms = 90'000;     // then the network and everybody in it behave
  std::int64_t night_ms = 4'000'000;
  double lose = 0.05;
  double twice = 0.05;
  double die = 0.004;                  // each second, each worker
  double pause = 0.004;
  double restart = 0.008;              // each second
  double store_fails = 0.01;           // each commit
  double clock_steps = 0.01;           // each second: wall time jumps, up to two days, either way
  double disk_full = 0.004;            // each second, each worker: for up to 20 s
  double corrupt = 0.01;               // each checkpoint: its bytes rot as soon as it is committed
  double quota = 0.3;                  // each worker has one, of a few checkpoints
  double cancel = 0.02;                // each second: a job or a stage
  double meddle = 0.02;                // each second: somebody resumes --from, edits a job, pins
  // Planted bug: reports count for whatever attempt is current now.
  bool forget_attempt_guard = false;
  // Planted bug: people get their answer before the commit.
  bool reply_before_commit = false;
};

// Clock, dice and the list of what went wrong: shared by all parts of a night.
class SimFate {
 public:
  explicit SimFate(const NightOptions& options_) : options(options_), random(options_.seed) {}

  bool chance(double probability) {
    return static_cast<double>(random() >> 11) * 0x1.0p-53 < probability;
  }
  bool fault(double probability) { return !calm && chance(probability); }
  std::int64_t up_to(std::int64_t ms) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(ms + 1));
  }
  std::uint64_t one_of(std::size_t count) { return random() % count; }
  void advance_to(std::int64_t mono_ms) {
    now.wall_ms += mono_ms - now.mono_ms;
    now.mono_ms = mono_ms;
  }
  void broken(const std::string& what) {
    violations.push_back(fmt::format("seed {}: {} ms: {}", options.seed, now.mono_ms, what));
  }

  NightOptions options;
  std::mt19937_64 random;
  Now now{1'000'000, 1'700'000'000'000};
  bool calm = false;                   // no more faults: what is left must come to a good end
  std::vector<std::string> violations;
};

// A short night in every three minutes: open in two of them, by the wall clock.
inline NightWindow short_night(const NightSpec&, std::int64_t wall_ms) {
  const std::int64_t in_cycle = wall_ms % 180'000;
  if (in_cycle < 60'000) return {false, 60'000 - in_cycle, -1};
  return {true, 0, 180'000 - in_cycle};
}

inline JobSpec random_job(std::mt19937_64& random) {
  std::string text;
  const int count = 2 + static_cast<int>(random() % 7);
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("s{}", i);
    text += name + "\n";
    for (int need = 0; need < i; ++need) {
      if (random() % 3 == 0) text += fmt::format("s{} -> {}\n", need, name);
    }
  }
  JobSpec spec = dag(text);
  spec.priority = static_cast<int>(random() % 2);
  spec.watchdog.log_silence_ms = 15'000;
  // Jobs differ, unless they are meant to find each other's results.
  if (random() % 4 != 0) spec.model_digest = fmt::format("model {}", random());
  if (random() % 5 == 0) spec.night = NightSpec{"22:00", "07:00", "UTC"};
  for (StageSpec& stage : spec.stages) {
    stage.retry.backoff_ms = 1'000;
    if (random() % 4 == 0) stage.wall_limit_ms = 60'000;
  }
  return spec;
}

}  // namespace nightshift::testing
