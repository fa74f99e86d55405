// The coordinator on a real SQLite file: group commit, and what a stage costs with everything kept.
// Usage: store_bench [FOLDER]   (where the file is made; default: the temporary folder)
#include <filesystem>

#include "tests/bench/bench_night.h"
#include "coordinator/sqlite_store.h"

using namespace nightshift;
using namespace nightshift::bench;
namespace fs = std::filesystem;

namespace {

constexpr int group = 64;

std::unique_ptr<Store> open_in(const fs::path& folder, const std::string& name) {
  auto store = open_sqlite_store((folder / name).string());
  if (!store.ok()) {
    fmt::print(stderr, "{}\n", store.error().line());
    return nullptr;
  }
  return std::move(*store);
}

// The same small change, one a commit and `group` a commit.
bool commits(const fs::path& folder) {
  auto store = open_in(folder, "commits.db");
  if (store == nullptr) return false;
  const EventAdded event{{{}, 1, "event=stage_done stage=quantize attempt=1 worker=box ms=1234"}};
  constexpr int singles = 500, groups = 100;
  Stopwatch single;
  for (int i = 0; i < singles; ++i) {
    if (!store->apply({event}).ok()) return false;
  }
  const double single_per_s = singles / single.wall_s();
  const std::vector<Change> many(group, event);
  Stopwatch grouped;
  for (int i = 0; i < groups; ++i) {
    if (!store->apply(many).ok()) return false;
  }
  const double grouped_per_s = groups * group / grouped.wall_s();
  report("commits_single_per_s", single_per_s, "changes/s");
  report("commits_grouped_64_per_s", grouped_per_s, "changes/s");
  report("group_commit_ratio", grouped_per_s / single_per_s, "x");
  return true;
}

bool stages(const fs::path& folder, const std::string& name, int workers, int slots) {
  auto store = open_in(folder, name + ".db");
  if (store == nullptr) return false;
  Engine engine(*store, {});
  Now now{1, 1};
  if (!engine.open(now).ok()) return false;
  add_workers(engine, now, workers, slots);
  const JobSpec spec = layered_job(1000, 3, name);
  Stopwatch submitting;
  if (!submit(engine, now, spec)) return false;
  auto sends = engine.flush(now);
  if (!sends.ok()) return false;
  report(name + "_submits_of_stages_per_s", 3000 / submitting.wall_s(), "stages/s");
  Stopwatch running;
  const int done = run_to_end(engine, now, std::move(*sends));
  if (done != 3000) return false;
  report(name + "_stages_per_s", done / running.wall_s(), "stages/s");
  report(name + "_coordinator_cpu_ms_per_stage", running.cpu_s() * 1e3 / done, "ms");
  Engine again(*store, {});
  Stopwatch recovering;
  if (!again.open(now).ok()) return false;
  report(name + "_recovery_ms", recovering.wall_s() * 1e3, "ms");
  return again.core().jobs.begin()->second.state == JobState::done;
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path parent = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path();
  std::string folder = (parent / "nightshift-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    fmt::print(stderr, "cannot make a folder in {}\n", parent.string());
    return 1;
  }
  const bool ok = commits(folder) && stages(folder, "grouped", 16, 4) &&
                  stages(folder, "one_slot", 1, 1);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return ok ? 0 : 1;
}
