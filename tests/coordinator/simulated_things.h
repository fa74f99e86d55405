// What a simulated night is made of: its options, its machines, its network's parcels, its jobs.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

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
  // Planted bug: reports count for whatever attempt is current now.
  bool forget_attempt_guard = false;
};

// One attempt as its worker has it.
struct SimProcess {
  std::int64_t ends_mono_ms = 0;
  Outcome outcome = Outcome::ok;
  bool hangs = false;
  bool finished = false;
  bool committed = false;
  std::int64_t said_mono_ms = -10'000;
  std::int64_t began_mono_ms = 0;
};
struct SimMachine {
  WorkerId name;
  int slots = 1;
  int session = 0;
  bool alive = false;
  std::int64_t back_mono_ms = 0;        // dead: returns then
  std::int64_t paused_until_mono_ms = 0;
  std::int64_t epoch = 0;               // welcomed by; 0: not welcomed
  std::int64_t heard_mono_ms = 0;
  std::map<AttemptRef, SimProcess> held;
  std::set<AttemptRef> folders;         // attempts that ever ran here
};
struct SimParcel {
  std::int64_t at_mono_ms = 0;
  std::uint64_t order = 0;
  bool to_coordinator = true;
  WorkerId worker;
  std::string session;
  Message message;
  bool operator>(const SimParcel& other) const {
    return std::tie(at_mono_ms, order) > std::tie(other.at_mono_ms, other.order);
  }
};

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
  for (StageSpec& stage : spec.stages) stage.retry.backoff_ms = 1'000;
  return spec;
}

}  // namespace nightshift::testing
