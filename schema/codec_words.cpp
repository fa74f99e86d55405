#include "schema/codec_fields.h"

namespace nightshift::codec {

const char* to_string(Limit::Side side) {
  return side == Limit::Side::at_least ? "at_least" : "at_most";
}

std::optional<Limit::Side> side_from(std::string_view text) {
  for (Limit::Side side : {Limit::Side::at_least, Limit::Side::at_most}) {
    if (text == to_string(side)) return side;
  }
  return std::nullopt;
}

const char* to_string(WatchdogMode mode) {
  switch (mode) {
    case WatchdogMode::log: return "log";
    case WatchdogMode::warn: return "warn";
    case WatchdogMode::act: return "act";
  }
  return "act";
}

std::optional<WatchdogMode> watchdog_mode_from(std::string_view text) {
  for (WatchdogMode mode : {WatchdogMode::log, WatchdogMode::warn, WatchdogMode::act}) {
    if (text == to_string(mode)) return mode;
  }
  return std::nullopt;
}

}  // namespace nightshift::codec
