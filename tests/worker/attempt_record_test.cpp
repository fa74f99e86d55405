#include "worker/attempt_record.h"

#include <doctest/doctest.h>

#include "tests/worker/support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {
AttemptFinished ended(AttemptRecord& record, const StageExit& exit) {
  record.on_exit(exit);
  return record.draft(std::nullopt, 0, 1'000);
}
AttemptRecord make_record() {
  return AttemptRecord(make_ref(3, "evaluate", 2), 0);
}
}  // namespace

TEST_CASE("attempt record: the stage's own words are the reason") {
  AttemptRecord record = make_record();
  record.on_report_line(
      R"({"error":{"what":"9 groups do not divide","where":"layers.3","hint":"group 64"}})", 10);
  const AttemptFinished result = ended(record, {4, 0, false});
  CHECK(result.outcome == Outcome::error);
  CHECK(result.reason == "layers.3: 9 groups do not divide (group 64)");
}

TEST_CASE("attempt record: without words, the exit code or the signal with its name") {
  AttemptRecord first = make_record();
  CHECK(ended(first, {1, 0, false}).reason == "exit code 1");
  AttemptRecord second = make_record();
  CHECK(ended(second, {-1, 11, false}).reason == "ended by signal 11 (Segmentation fault)");
  AttemptRecord third = make_record();
  const AttemptFinished killed = ended(third, {-1, 9, true});
  CHECK(killed.outcome == Outcome::oom);
  CHECK(killed.reason == "killed by the kernel: out of memory");
  AttemptRecord fourth = make_record();
  CHECK(ended(fourth, {0, 0, false}).reason == "");
}

TEST_CASE("attempt record: malformed lines are counted and shown, never more") {
  AttemptRecord record = make_record();
  for (const char* line : {"", "{", "[1]", "{\"progress\":{\"done\":\"x\"}}", "\xff\xfe", "12%"}) {
    record.on_report_line(line, 5);
  }
  record.on_report_line(R"({"metric":{"name":"ppl","value":7.5,"unit":""}})", 6);
  const AttemptFinished result = ended(record, {0, 0, false});
  CHECK(result.outcome == Outcome::ok);
  CHECK(record.reports_malformed() == 6);
  REQUIRE(result.metrics.size() == 1);
  CHECK(result.metrics[0].value == 7.5);
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0].starts_with("6 report line(s) were malformed"));
}

TEST_CASE("attempt record: bytes in the log are life, and peak memory is kept") {
  AttemptRecord record = make_record();
  record.on_sample({500, 10}, 1'000);
  record.on_sample({200, 10}, 4'000);
  AttemptPulse pulse = record.pulse(5'000);
  CHECK(pulse.log_age_ms == 4'000);
  CHECK(pulse.progress_age_ms == 5'000);
  CHECK(pulse.memory_bytes == 200);
  record.on_sample({std::nullopt, 11}, 6'000);
  pulse = record.pulse(6'500);
  CHECK(pulse.log_age_ms == 500);
  CHECK(pulse.memory_bytes == 200);  // unknown is not zero
  CHECK(ended(record, {0, 0, false}).peak_memory_bytes == 500);
}

TEST_CASE("attempt record: a flood of metrics and notes is bounded and said") {
  AttemptRecord record = make_record();
  for (int i = 0; i < 25'000; ++i) {
    record.on_report_line(R"({"metric":{"name":"m","value":1,"unit":""}})", 1);
    if (i < 2'000) record.on_report_line(R"({"note":{"text":"n"}})", 1);
  }
  const AttemptFinished result = ended(record, {0, 0, false});
  CHECK(result.metrics.size() == metrics_max);
  CHECK(result.notes.size() == notes_max + 1);
  CHECK(result.notes.back() == "6000 report lines beyond the bounds were left out");
}

TEST_CASE("attempt record: notes of 60 KB each never make a result that cannot be sent") {
  AttemptRecord record = make_record();
  const std::string line = R"({"note":{"text":")" + std::string(60'000, 'n') + "\"}}";
  for (int i = 0; i < 900; ++i) record.on_report_line(line, 1);
  const AttemptFinished result = ended(record, {0, 0, false});
  CHECK(result.notes.size() < 300);
  CHECK(encode(result).body.size() < wire::body_bytes_max / 2);
}
