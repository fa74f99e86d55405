#include "coordinator/server_night.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

namespace nightshift {

namespace {

constexpr int start_alone_minutes = 12 * 60;
constexpr int day_minutes = 24 * 60;

// The C library knows every rule of every zone, but one zone at a time.
class InZone {
 public:
  explicit InZone(const std::string& zone) {
    if (zone.empty() || ::access(("/usr/share/zoneinfo/" + zone).c_str(), R_OK) != 0) return;
    if (const char* before = std::getenv("TZ")) before_ = before;
    is_set_ = true;
    ::setenv("TZ", (":" + zone).c_str(), 1);
    ::tzset();
  }
  ~InZone() {
    if (!is_set_) return;
    if (before_) ::setenv("TZ", before_->c_str(), 1);
    else ::unsetenv("TZ");
    ::tzset();
  }
  InZone(const InZone&) = delete;
  InZone& operator=(const InZone&) = delete;

 private:
  std::optional<std::string> before_;
  bool is_set_ = false;
};

// "22:00" -> minutes after midnight.
std::optional<int> minutes_of(const std::string& text) {
  int hour = 0;
  int minute = 0;
  if (std::sscanf(text.c_str(), "%d:%d", &hour, &minute) != 2) return std::nullopt;
  if (hour < 0 || hour > 24 || minute < 0 || minute > 59) return std::nullopt;
  return (hour * 60 + minute) % day_minutes;
}

// How long until the clock next shows these minutes; a whole day when it shows them now.
std::int64_t until_ms(int minutes, const std::tm& local, std::int64_t wall_ms) {
  for (int days = 0; days <= 2; ++days) {
    std::tm target = local;
    target.tm_mday += days;
    target.tm_hour = minutes / 60;
    target.tm_min = minutes % 60;
    target.tm_sec = 0;
    target.tm_isdst = -1;
    const std::int64_t at_ms = std::int64_t{std::mktime(&target)} * 1000;
    if (at_ms > wall_ms) return at_ms - wall_ms;
  }
  return std::int64_t{day_minutes} * 60'000;
}

}  // namespace

NightWindow night_window(const NightSpec& night, std::int64_t wall_ms) {
  const std::optional<int> start = minutes_of(night.start);
  std::optional<int> deadline = minutes_of(night.deadline);
  if (!start && !deadline) return {};
  const InZone zone(night.zone);
  const std::time_t seconds = static_cast<std::time_t>(wall_ms / 1000);
  std::tm local{};
  if (!::localtime_r(&seconds, &local)) return {};
  if (!start) return {true, 0, until_ms(*deadline, local, wall_ms)};
  if (!deadline) deadline = (*start + start_alone_minutes) % day_minutes;
  if (*start == *deadline) return {};
  const int now = local.tm_hour * 60 + local.tm_min;
  const bool over_midnight = *start > *deadline;
  const bool is_open = over_midnight ? now >= *start || now < *deadline
                                     : now >= *start && now < *deadline;
  if (!is_open) return {false, until_ms(*start, local, wall_ms), -1};
  return {true, 0, until_ms(*deadline, local, wall_ms)};
}

}  // namespace nightshift
