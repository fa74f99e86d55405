// The last lines of an attempt's log, for people. Knows carriage returns; must not know attempts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nightshift {

inline constexpr std::size_t log_tail_bytes_max = 8 * 1024;

// The last whole lines of `text` in at most `bytes_max` bytes of UTF-8. Of a line that a progress
// bar has redrawn with '\r' only the last state is shown; a line longer than the bound keeps its
// end.
std::string last_lines(std::string_view text, std::size_t bytes_max = log_tail_bytes_max);
// The same for a file of any length; empty when it cannot be read.
std::string log_tail(const std::string& path);
// The last line with something in it, at most `bytes_max` bytes.
std::string last_line(std::string_view tail, std::size_t bytes_max);

}  // namespace nightshift
