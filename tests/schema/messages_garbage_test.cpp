// Wire messages from a peer that is broken or hostile: refused, never a crash, never much memory.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>

#include "schema/messages.h"
#include "schema/msgpack_scan.h"
#include "tests/schema/message_examples.h"

using namespace nightshift;
using nightshift::test::message_examples;

namespace {

constexpr std::string_view head{"NSHF\x01", 5};

// NIGHTSHIFT_SEED repeats a run.
std::uint64_t fresh_seed() {
  if (const char* given = std::getenv("NIGHTSHIFT_SEED")) return std::strtoull(given, nullptr, 10);
  return static_cast<std::uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count());
}

long peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

std::string number_of(int number) { return std::string(1, static_cast<char>(number)); }

}  // namespace

TEST_CASE("messages: random bytes as a body are refused, whatever the number says") {
  const std::uint64_t seed = fresh_seed();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string body(random() % 64, '\0');
    for (char& c : body) c = static_cast<char>(random());
    (void)decode(head, number_of(static_cast<int>(random() % 256)), body);
  }
}

TEST_CASE("messages: flipped bits and cut bodies never crash, and what is accepted can be sent") {
  const std::uint64_t seed = fresh_seed();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  const auto examples = message_examples();
  for (int round = 0; round < 20'000; ++round) {
    Frames frames = encode(examples[random() % examples.size()]);
    for (std::size_t flips = 1 + random() % 4; flips > 0; --flips) {
      frames.body[random() % frames.body.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    if (random() % 4 == 0) frames.body.resize(random() % frames.body.size());
    const Result<Message> got = decode(frames.head, frames.number, frames.body);
    if (!got.ok()) {
      CHECK_FALSE(got.error().what.empty());
      continue;
    }
    const Frames again = encode(*got);
    CHECK(decode(again.head, again.number, again.body).ok());
  }
}

TEST_CASE("messages: a body of every prefix is refused") {
  for (const Message& example : message_examples()) {
    const Frames frames = encode(example);
    const std::size_t step = 1 + frames.body.size() / 200;
    for (std::size_t bytes = 0; bytes < frames.body.size(); bytes += step) {
      CHECK_FALSE(decode(frames.head, frames.number, frames.body.substr(0, bytes)).ok());
    }
  }
}

TEST_CASE("messages: bombs are refused before anything is built") {
  const long before = peak_memory_mib();
  const auto refused = [](const std::string& body, const std::string& why) {
    const auto got = decode(head, number_of(3), body);
    REQUIRE_FALSE(got.ok());
    CHECK_MESSAGE(got.error().what.find(why) != std::string::npos, got.error().what);
  };
  refused(std::string(10'000'000, '\x91'), "nested deeper than 64");
  refused("\xdd\xff\xff\xff\xff", "a length beyond the end");
  refused("\xdf\xff\xff\xff\xff\xa0", "a length beyond the end");
  refused("\xdb\xff\xff\xff\xffxx", "a length beyond the end");
  refused(std::string("\xdd\x00\xf0\x00\x00", 5) + std::string(0xf00000, '\xc0'),
          "more than 1000000 values");
  refused("\x81\xc0\xc0", "a map key that is not text");
  refused("\xc1", "an unknown type");
  refused(std::string("\xd4\x00\x00", 3), "an unknown type");
  refused("\x80\x80", "bytes follow the end");
  refused("", "it ends too early");
  CHECK(peak_memory_mib() - before < 100);
}

TEST_CASE("messages: the scan takes what the library writes") {
  for (const Message& example : message_examples()) {
    CHECK(codec::check_msgpack(encode(example).body, "test").ok());
  }
}
