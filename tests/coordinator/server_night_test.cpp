#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "coordinator/server_night.h"

using namespace nightshift;

namespace {

constexpr std::int64_t hour_ms = 3'600'000;
// 2026-01-15 00:00 in Shanghai (UTC+8, no daylight saving) is 2026-01-14 16:00 UTC.
constexpr std::int64_t shanghai_midnight_ms = 1'768'406'400'000;

NightWindow at(double hours_after_midnight, const std::string& start, const std::string& deadline) {
  const auto after_ms = static_cast<std::int64_t>(hours_after_midnight * hour_ms);
  return night_window({start, deadline, "Asia/Shanghai"}, shanghai_midnight_ms + after_ms);
}

}  // namespace

TEST_CASE("server night: a window over midnight") {
  CHECK(at(1, "22:00", "07:00").open);
  CHECK(at(1, "22:00", "07:00").closes_in_ms == 6 * hour_ms);
  CHECK(at(22, "22:00", "07:00").open);
  CHECK(at(22, "22:00", "07:00").closes_in_ms == 9 * hour_ms);
  CHECK_FALSE(at(7, "22:00", "07:00").open);
  CHECK(at(7, "22:00", "07:00").opens_in_ms == 15 * hour_ms);
  CHECK_FALSE(at(21.5, "22:00", "07:00").open);
  CHECK(at(21.5, "22:00", "07:00").opens_in_ms == hour_ms / 2);
}

TEST_CASE("server night: a window by day, half a window, and none") {
  CHECK(at(10, "09:00", "17:00").open);
  CHECK_FALSE(at(8, "09:00", "17:00").open);
  CHECK_FALSE(at(17, "09:00", "17:00").open);
  CHECK(at(17, "09:00", "17:00").opens_in_ms == 16 * hour_ms);
  CHECK(at(3, "", "07:00").open);
  CHECK(at(3, "", "07:00").closes_in_ms == 4 * hour_ms);
  CHECK(at(8, "", "07:00").closes_in_ms == 23 * hour_ms);
  CHECK(at(9, "22:00", "").open);
  CHECK_FALSE(at(11, "22:00", "").open);
  CHECK(at(11, "", "").open);
  CHECK(at(11, "", "").closes_in_ms == -1);
}

TEST_CASE("server night: daylight saving makes one night shorter and one longer") {
  // Berlin, 2026-03-28 22:00 CET = 21:00 UTC; the clocks go forward at 02:00.
  const NightSpec night{"22:00", "07:00", "Europe/Berlin"};
  CHECK(night_window(night, 1'774'731'600'000).closes_in_ms == 8 * hour_ms);
  // 2026-10-24 22:00 CEST = 20:00 UTC; back at 03:00.
  CHECK(night_window(night, 1'792'872'000'000).closes_in_ms == 10 * hour_ms);
}

TEST_CASE("server night: the zone of the process stays as it was") {
  ::setenv("TZ", "UTC", 1);
  at(1, "22:00", "07:00");
  CHECK(std::string(std::getenv("TZ")) == "UTC");
  ::unsetenv("TZ");
  at(1, "22:00", "07:00");
  CHECK(std::getenv("TZ") == nullptr);
}
