// The coordinator without disk and network: what planning, scheduling and the reactor cost.
#include "tests/bench/bench_night.h"

using namespace nightshift;
using namespace nightshift::bench;

namespace {

bool run_job(const std::string& name, int width, int depth, int workers, int slots) {
  NullStore store;
  Engine engine(store, {});
  Now now{1, 1};
  if (!engine.open(now).ok()) return false;
  add_workers(engine, now, workers, slots);
  const JobSpec spec = layered_job(width, depth, name);
  Stopwatch submitting;
  if (!submit(engine, now, spec)) return false;
  auto sends = engine.flush(now);
  if (!sends.ok()) return false;
  report(name + "_submit_ms", submitting.wall_s() * 1e3, "ms");
  Stopwatch running;
  const int done = run_to_end(engine, now, std::move(*sends));
  const double wall_s = running.wall_s(), cpu_s = running.cpu_s();
  if (done != width * depth || engine.core().jobs.begin()->second.state != JobState::done) {
    fmt::print(stderr, "{}: {} of {} stages done\n", name, done, width * depth);
    return false;
  }
  report(name + "_stages_per_s", done / wall_s, "stages/s");
  report(name + "_cpu_ms_per_stage", cpu_s * 1e3 / done, "ms");
  return true;
}

// One pass over many ready stages that fit nowhere: what an idle night costs.
bool idle_pass() {
  NullStore store;
  Engine engine(store, {});
  Now now{1, 1};
  if (!engine.open(now).ok()) return false;
  add_workers(engine, now, 200, 1);
  JobSpec spec = layered_job(10'000, 1, "idle");
  for (StageSpec& stage : spec.stages) stage.resources.gpu = 8;
  if (!submit(engine, now, spec)) return false;
  if (!engine.flush(now).ok()) return false;
  constexpr int passes = 1000;
  std::size_t assigned = 0;
  Stopwatch watch;
  for (int i = 0; i < passes; ++i) {
    assigned += schedule(engine.core(), engine.options().scheduler, now).size();
  }
  report("idle_pass_10000_ready_200_workers_us", watch.wall_s() * 1e6 / passes, "us");
  return assigned == 0;
}

}  // namespace

int main() {
  const bool ok = run_job("wide_10000", 10'000, 1, 16, 4) &&
                  run_job("layers_100x100", 100, 100, 16, 4) &&
                  run_job("wide_10000_on_200_workers", 10'000, 1, 200, 1) && idle_pass();
  return ok ? 0 : 1;
}
