// The worker's own log: one event a line on stderr, "time event=stage_started attempt=...". Knows
// quoting; must not know what the events mean.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nightshift {

using LogField = std::pair<std::string_view, std::string>;

// Values with spaces, quotes or control characters are quoted, so that a line stays one line.
std::string format_event(std::string_view event, const std::vector<LogField>& fields);
void log_event(std::string_view event, const std::vector<LogField>& fields = {});

}  // namespace nightshift
