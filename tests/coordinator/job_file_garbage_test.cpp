// Job files with random damage: errors with places, or a spec that can be sent; never a crash.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/coordinator/job_file_support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

// NIGHTSHIFT_SEED repeats a run.
std::uint64_t fresh_seed() {
  if (const char* given = std::getenv("NIGHTSHIFT_SEED")) return std::strtoull(given, nullptr, 10);
  return static_cast<std::uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count());
}

void check_outcome(const std::string& text) {
  const JobFileResult result = parse(text);
  if (result.spec) {
    CHECK(result.errors.empty());
    const auto back = job_spec_from_json(to_json_text(*result.spec), "test");
    CHECK_MESSAGE(back.ok(), (back.ok() ? "" : back.error().line()));
    return;
  }
  REQUIRE_FALSE(result.errors.empty());
  for (const Error& error : result.errors) {
    CHECK(error.where.starts_with("/jobs/j.yaml"));
    CHECK_FALSE(error.what.empty());
  }
}

constexpr const char* fragments[] = {
    "{", "}", "[", "]", ": ", "- ", "&a ", "*a", "<<: ", "\n", "  ", "\"", "'", "|", ">", "#", "!",
    "!!int ", "? ", "---\n", "...\n", "%YAML 1.2\n", "\t", "\xff", "~", "null", "0x10", "1e999",
    "needs: ", "kind: run", "-1", "9999999999999999999", "22:00", "\xE2\x80\xA8", "\r"};

}  // namespace

TEST_CASE("job file: random damage to the sample") {
  const std::uint64_t seed = fresh_seed();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string sample = file_text(repository_root() + "/jobs/k3-nano.yaml");
  for (int round = 0; round < 2000; ++round) {
    std::string text = sample;
    for (std::size_t changes = 1 + random() % 6; changes > 0; --changes) {
      if (text.empty()) break;
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 20); break;
        case 2: text.insert(at, fragments[random() % std::size(fragments)]); break;
        case 3: text.insert(at, text.substr(random() % text.size(), random() % 80)); break;
        default: text.resize(1 + at); break;
      }
    }
    check_outcome(text);
  }
}

TEST_CASE("job file: random words of YAML") {
  const std::uint64_t seed = fresh_seed();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::size_t parts = random() % 40; parts > 0; --parts) {
      text += fragments[random() % std::size(fragments)];
    }
    check_outcome(text);
  }
}
