// Hundreds of simulated nights, and the proof that the simulator can find a bug.
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
  const std::uint64_t nights = number_from("NIGHTSHIFT_NIGHTS", 500);
  const std::uint64_t first = only == 0 ? 1 : only;
  const std::uint64_t last = only == 0 ? nights : only;
  int attempts = 0, restarts = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    NightOptions options;
    options.seed = seed;
    SimulatedNight night(options);
    const std::vector<std::string> violations = night.run();
    attempts += night.attempts_run();
    restarts += night.restarts();
    for (const std::string& what : violations) FAIL_CHECK(what);
    if (!violations.empty()) break;
  }
  if (only == 0) {   // the nights were not empty
    CHECK(attempts > static_cast<int>(10 * nights));
    CHECK(restarts > static_cast<int>(nights / 3));
  }
}

TEST_CASE("simulation: one worker, one slot, a store that often fails") {
  for (std::uint64_t seed = 1001; seed <= 1050; ++seed) {
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
  for (std::uint64_t seed = 2001; seed <= 2010; ++seed) {
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
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
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
  MESSAGE("planted bug caught in ", caught, " of 60 nights, first: ", example);
}
