// What the coordinator's benches share: jobs of stages that do nothing, workers that answer at
// once, and figures as a table for people (stderr) and a JSON object a line (stdout).
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "coordinator/reactor_engine.h"

namespace nightshift::bench {

inline void report(const std::string& name, double value, const std::string& unit) {
  fmt::print(stderr, "{:<44} {:>14.3f} {}\n", name, value, unit);
  fmt::print("{{\"name\":\"{}\",\"value\":{:.6g},\"unit\":\"{}\"}}\n", name, value, unit);
}

inline double seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Wall and CPU time of this process since it was made.
class Stopwatch {
 public:
  double wall_s() const { return seconds(CLOCK_MONOTONIC) - wall_; }
  double cpu_s() const { return seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_; }

 private:
  double wall_ = seconds(CLOCK_MONOTONIC);
  double cpu_ = seconds(CLOCK_PROCESS_CPUTIME_ID);
};

// `width` stages side by side, `depth` layers, each needing the one above it.
inline JobSpec layered_job(int width, int depth, const std::string& name) {
  JobSpec spec;
  spec.name = name;
  spec.model_digest = name;   // nothing is reused between jobs
  for (int layer = 0; layer < depth; ++layer) {
    for (int i = 0; i < width; ++i) {
      StageSpec stage;
      stage.name = fmt::format("s{}_{}", layer, i);
      stage.kind = "run";
      stage.command = {"true", stage.name};
      if (layer > 0) stage.needs = {fmt::format("s{}_{}", layer - 1, i)};
      spec.stages.push_back(std::move(stage));
    }
  }
  return spec;
}

class NullStore final : public Store {
 public:
  Result<ServerEpoch> next_epoch() override { return ServerEpoch{1}; }
  Result<StoredState> load() override { return StoredState{}; }
  Status apply(const std::vector<Change>&) override { return {}; }
};

// Runs everything that is submitted: every order is answered at once with started, finished and
// committed, a group of answers for each commit. Returns the stages done, or -1 on an error.
inline int run_to_end(Engine& engine, Now& now, std::vector<Send> sends) {
  int done = 0;
  while (!sends.empty()) {
    std::vector<Send> batch;
    batch.swap(sends);
    now.mono_ms += 1;
    now.wall_ms += 1;
    for (const Send& send : batch) {
      const Sender sender{send.worker, send.session};
      if (const auto* assign = std::get_if<AssignAttempt>(&send.message)) {
        engine.run(now, [&](Turn& turn) {
          on_attempt_started(turn, sender, {assign->ref, 1, "/log"});
        });
        AttemptFinished finished;
        finished.ref = assign->ref;
        finished.outcome = Outcome::ok;
        finished.elapsed_ms = 1;
        finished.checkpoint = CheckpointInfo{"/c/" + assign->ref.stage, "0123456789abcdef", 1};
        engine.run(now, [&](Turn& turn) { on_attempt_finished(turn, sender, finished); });
      } else if (const auto* commit = std::get_if<CommitCheckpoint>(&send.message)) {
        engine.run(now, [&](Turn& turn) {
          on_checkpoint_committed(turn, sender, {commit->ref, true, ""});
        });
        done += 1;
      }
    }
    auto flushed = engine.flush(now);
    if (!flushed.ok()) {
      fmt::print(stderr, "{}\n", flushed.error().line());
      return -1;
    }
    sends = std::move(*flushed);
  }
  return done;
}

inline bool submit(Engine& engine, Now now, const JobSpec& spec) {
  return engine.run(now, [&](Turn& turn) { return on_submit(turn, {spec, "", "ann", ""}); }).ok();
}

inline void add_workers(Engine& engine, Now now, int count, int slots) {
  for (int i = 0; i < count; ++i) {
    WorkerHello hello;
    hello.worker = {fmt::format("box{}", i)};
    hello.session = "s";
    hello.resources.slots = slots;
    engine.run(now, [&](Turn& turn) { on_worker_hello(turn, hello); });
  }
}

}  // namespace nightshift::bench
