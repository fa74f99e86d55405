// Thousands of simulated nights, and the proof that the simulator can find a bug.
#include "tests/coordinator/simulated_night.h"

#include <cstdlib>
#include <filesystem>

#include "coordinator/sqlite_store.h"

using nightshift::open_sqlite_store;
using nightshift::testing::NightOptions;
using nightshift::testing::SimulatedNight;

namespace {

// NIGHTSHIFT_SEED=n runs that night alone, NIGHTSHIFT_NIGHTS=n so many of them.
std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

std::vector<std::string> run_night(NightOptions options) {
  return SimulatedNight(options).run();
}

}  // namespace

TEST_CASE("simulation: every job is done once, whatever the network and the machines do") {
  const std::uint64_t only = number_from("NIGHTSHIFT_SEED", 0);
  const std::uint64_t nights = number_from("NIGHTSHIFT_NIGHTS", 8000);
  const std::uint64_t first = only == 0 ? 1 : only;
  const std::uint64_t last = only == 0 ? nights : only;
  std::uint64_t attempts = 0, restarts = 0, resumes = 0, dropped = 0, fetched = 0, corrupt = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    NightOptions options;
    options.seed = seed;
    SimulatedNight night(options);
    const std::vector<std::string> violations = night.run();
    attempts += night.machines().attempts_run();
    dropped += night.machines().dropped();
    fetched += night.machines().fetched();
    corrupt += night.machines().found_corrupt();
    restarts += night.restarts();
    resumes += night.resumes();
    for (const std::string& what : violations) FAIL_CHECK(what);
    if (!violations.empty()) break;
  }
  MESSAGE(attempts, " attempts, ", restarts, " restarts, ", resumes, " resumes, ", fetched,
          " checkpoints fetched, ", dropped, " dropped, ", corrupt, " found corrupt");
  if (only == 0) {   // the nights were not empty
    CHECK(attempts > 10 * nights);
    CHECK(restarts > nights / 3);
    CHECK(resumes > nights / 2);
    CHECK(fetched > nights);
    CHECK(dropped > nights / 10);
    CHECK(corrupt > nights / 100);
  }
}

TEST_CASE("simulation: one worker, one slot, a store that often fails") {
  for (std::uint64_t seed = 10001; seed <= 10500; ++seed) {
    NightOptions options;
    options.seed = seed;
    options.workers = 1;
    options.store_fails = 0.1;
    for (const std::string& what : run_night(options)) FAIL_CHECK(what);
  }
}

TEST_CASE("simulation: nights on a real database") {
  std::string folder =
      (std::filesystem::temp_directory_path() / "nightshift-night-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  for (std::uint64_t seed = 20001; seed <= 20020; ++seed) {
    auto store = open_sqlite_store(folder + "/" + std::to_string(seed), {.synchronous_off = true});
    REQUIRE(store.ok());
    NightOptions options;
    options.seed = seed;
    options.store_fails = 0.03;
    for (const std::string& what : SimulatedNight(options, store->get()).run()) FAIL_CHECK(what);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("simulation: the canary: without the attempt guard a night goes wrong, and it is seen") {
  int caught = 0;
  std::string example;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    NightOptions options;
    options.seed = seed;
    options.forget_attempt_guard = true;
    options.pause = 0.03;
    const std::vector<std::string> violations = run_night(options);
    if (violations.empty()) continue;
    caught += 1;
    if (example.empty()) example = violations.front();
  }
  CAPTURE(example);
  CHECK(caught >= 10);
  MESSAGE("planted bug caught in ", caught, " of 200 nights, first: ", example);
}

TEST_CASE("simulation: the canary: an answer before its commit is seen") {
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    NightOptions options;
    options.seed = seed;
    options.reply_before_commit = true;
    options.store_fails = 0.05;
    caught += run_night(options).empty() ? 0 : 1;
  }
  CHECK(caught >= 5);
}
