// Reads an attempt's log for people: its last lines, or a piece by offset. Knows files and carriage
// returns; must not know attempts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

inline constexpr std::size_t log_tail_bytes_max = 8 * 1024;
inline constexpr std::int64_t log_piece_bytes_max = 1 << 20;

// The last whole lines of `text` in at most `bytes_max` bytes of UTF-8. Of a line that a progress
// bar has redrawn with '\r' only the last state is shown; a line longer than the bound keeps its
// end.
std::string last_lines(std::string_view text, std::size_t bytes_max = log_tail_bytes_max);
// The same for a file of any length; empty when it cannot be read.
std::string log_tail(const std::string& path);
// The last line with something in it, at most `bytes_max` bytes.
std::string last_line(std::string_view tail, std::size_t bytes_max);

struct LogPiece {
  std::int64_t offset = 0;  // where `bytes` begins
  std::int64_t size = 0;    // of the whole log now
  std::string bytes;
};
// offset < 0: so many bytes before the end. At most log_piece_bytes_max.
Result<LogPiece> read_log_piece(const std::string& path, std::int64_t offset,
                                std::int64_t bytes_max);

}  // namespace nightshift
