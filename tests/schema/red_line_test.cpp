// Red lines: reading them, and comparing.
#include "schema/red_line.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using namespace nightshift;
using Side = Limit::Side;

namespace {

Limit limit_of(const char* text, const char* unit) {
  Result<Limit> limit = parse_limit(text, unit);
  REQUIRE_MESSAGE(limit.ok(), text);
  return *limit;
}

RedLineResult only(const RedLines& lines, const Measurement& baseline,
                   const Measurement& measured) {
  auto results = check_red_lines(lines, baseline, measured, {});
  REQUIRE(results.size() == 1);
  return results[0];
}

const std::map<std::string, std::vector<std::string>> groups = {
    {"target", {"summary", "qa"}}, {"general", {"code", "zh"}}};

}  // namespace

TEST_CASE("limit: each unit") {
  struct Row {
    const char* text;
    const char* unit;
    double value;
  };
  const Row rows[] = {
      {">= 1600", "tok/s", 1600},        {">=1.6e3 tok/s", "tok/s", 1600},
      {"<= 120", "ms", 120},             {"<= 120 ms", "ms", 120},
      {"<= 1.5s", "ms", 1500},           {"<= 250us", "ms", 0.25},
      {"<= 20GiB", "bytes", 21474836480.0}, {"<= 20 GB", "bytes", 2e10},
      {"<= 512MiB", "bytes", 536870912}, {"<= 5 KiB", "bytes", 5120},
      {"<= 7MB", "bytes", 7e6},          {"<= 3KB", "bytes", 3000},
      {"<= 100", "bytes", 100},          {">= 95%", "fraction", 0.95},
      {">= 0.95", "fraction", 0.95},     {"<= 2%", "fraction", 0.02},
  };
  for (const Row& row : rows) {
    const Limit limit = limit_of(row.text, row.unit);
    CHECK_MESSAGE(limit.value == doctest::Approx(row.value), row.text);
    CHECK_FALSE(limit.relative);
    CHECK(limit.text == row.text);
    CHECK(limit.side == (row.text[0] == '>' ? Side::at_least : Side::at_most));
  }
}

TEST_CASE("limit: an x makes it a factor on the baseline, in every unit") {
  for (const char* unit : {"tok/s", "ms", "bytes", "fraction"}) {
    const Limit limit = limit_of("  <= 0.33x ", unit);
    CHECK(limit.relative);
    CHECK(limit.value == 0.33);
    CHECK(limit.text == "<= 0.33x");
  }
}

TEST_CASE("limit: what is not one is refused with an example") {
  const std::pair<const char*, const char*> bad[] = {
      {"", "ms"},          {"120 ms", "ms"},     {"< 120", "ms"},      {"== 3", "ms"},
      {">=", "ms"},        {">= fast", "ms"},    {">= inf", "ms"},     {">= nan", "ms"},
      {">= -3", "ms"},     {">= 1e999", "ms"},   {"<= 3 GiB", "ms"},   {"<= 0x10", "ms"},
      {"<= 0x", "ms"},     {"<= 3 hours", "ms"}, {">= 95", "fraction"}, {">= 120%", "fraction"},
      {"<= 20 Gib", "bytes"}, {">= 3 req/s", "tok/s"}, {">= 1,600", "tok/s"}};
  for (const auto& [text, unit] : bad) {
    const Result<Limit> limit = parse_limit(text, unit);
    CAPTURE(text);
    REQUIRE_FALSE(limit.ok());
    CHECK(limit.error().hint.find("write it like") == 0);
  }
}

TEST_CASE("red lines: absolute limits, on the line is inside") {
  RedLines lines;
  lines.ttft_ms = limit_of("<= 120", "ms");
  Measurement measured;
  measured.ttft_ms = 120;
  CHECK(only(lines, {}, measured).pass);
  measured.ttft_ms = 120.001;
  const RedLineResult result = only(lines, {}, measured);
  CHECK_FALSE(result.pass);
  CHECK(result.name == "ttft_ms");
  CHECK(result.limit == "<= 120");
  CHECK(result.limit_value == 120);
  CHECK(result.measured == 120.001);
  CHECK_FALSE(result.at_least);
}

TEST_CASE("red lines: relative limits are multiplied by the baseline") {
  RedLines lines;
  lines.throughput_tok_s = limit_of(">= 3.0x", "tok/s");
  Measurement baseline, measured;
  baseline.throughput_tok_s = 100;
  measured.throughput_tok_s = 299;
  RedLineResult result = only(lines, baseline, measured);
  CHECK_FALSE(result.pass);
  CHECK(result.limit_value == 300);
  CHECK(result.detail == "measured 299, baseline 100, that is 2.99x");
  measured.throughput_tok_s = 300;
  CHECK(only(lines, baseline, measured).pass);
}

TEST_CASE("red lines: a number that is missing or not finite is a breach that says so") {
  RedLines lines;
  lines.peak_memory_bytes = limit_of("<= 1.0x", "bytes");
  Measurement baseline, measured;
  CHECK(only(lines, baseline, measured).detail == "not measured: counts as a breach");
  measured.peak_memory_bytes = NAN;
  CHECK_FALSE(only(lines, baseline, measured).pass);
  CHECK(only(lines, baseline, measured).measured == 0);
  measured.peak_memory_bytes = 10;
  const RedLineResult result = only(lines, baseline, measured);
  CHECK_FALSE(result.pass);
  CHECK(result.detail.find("the baseline has no such number") != std::string::npos);
  baseline.peak_memory_bytes = 0;
  CHECK_FALSE(only(lines, baseline, measured).pass);
}

TEST_CASE("red lines: accuracy is the mean of a class, its drop a share of the baseline") {
  RedLines lines;
  lines.accuracy_drop = {{"target", 0.02}};
  Measurement baseline, measured;
  baseline.accuracy = {{"summary", 0.4}, {"qa", 0.6}};
  // 2% of .50 is .01: .49 is inside, .489 is not.
  measured.accuracy = {{"summary", 0.4}, {"qa", 0.58}};
  auto results = check_red_lines(lines, baseline, measured, groups);
  REQUIRE(results.size() == 1);
  CHECK(results[0].pass);
  CHECK(results[0].name == "accuracy_drop.target");
  CHECK(results[0].limit == "<= 2%");
  CHECK(results[0].limit_value == doctest::Approx(0.49));
  CHECK(results[0].measured == doctest::Approx(0.49));
  measured.accuracy["qa"] = 0.578;
  CHECK_FALSE(check_red_lines(lines, baseline, measured, groups)[0].pass);
}

TEST_CASE("red lines: accuracy without groups, baseline or measurement is a breach") {
  RedLines lines;
  lines.accuracy_drop = {{"general", 0.03}, {"target", 0.02}};
  Measurement full, half;
  full.accuracy = {{"summary", 0.4}, {"qa", 0.6}, {"code", 0.5}, {"zh", 0.5}};
  half.accuracy = {{"summary", 0.4}, {"code", 0.5}, {"zh", 0.5}};
  const auto missing_after = check_red_lines(lines, full, half, groups);
  CHECK(missing_after.at(0).pass);
  CHECK(missing_after.at(1).detail == "accuracy of `qa` was not measured: counts as a breach");
  const auto missing_before = check_red_lines(lines, half, full, groups);
  CHECK_FALSE(missing_before.at(1).pass);
  CHECK(missing_before.at(1).detail ==
        "the baseline has no accuracy of `qa`: counts as a breach");
  for (const auto& result : check_red_lines(lines, full, full, {})) CHECK_FALSE(result.pass);
}

TEST_CASE("red lines: the order is fixed and only stated lines are compared") {
  RedLines lines;
  CHECK(check_red_lines(lines, {}, {}, groups).empty());
  lines.token_match = limit_of(">= 95%", "fraction");
  lines.accuracy_drop = {{"target", 0.02}, {"general", 0.03}};
  lines.peak_memory_bytes = limit_of("<= 20GiB", "bytes");
  lines.throughput_tok_s = limit_of(">= 1", "tok/s");
  lines.tpot_ms = limit_of("<= 1", "ms");
  lines.ttft_ms = limit_of("<= 1", "ms");
  std::string names;
  for (const auto& result : check_red_lines(lines, {}, {}, groups)) {
    names += result.name + " ";
    CHECK_FALSE(result.pass);
  }
  CHECK(names == "throughput_tok_s ttft_ms tpot_ms peak_memory token_match "
                 "accuracy_drop.general accuracy_drop.target ");
}
