// Reads a piece of an attempt's log, which may lack its middle: the worker punches a hole into a
// log that is too long. Knows files; must not know attempts or who asks.
//
// A hole keeps every offset and the size as they are, so a reader that follows a log notices
// nothing but a piece that begins later than it asked for.
#pragma once

#include <cstdint>
#include <string>

#include "schema/result.h"

namespace nightshift {

struct LogPiece {
  std::int64_t offset = 0;  // where `bytes` begins; behind the hole when it was asked for
  std::int64_t size = 0;    // of the whole log now
  std::string bytes;        // ends at the hole
};

// offset < 0: so many bytes before the end.
Result<LogPiece> read_log_piece(const std::string& path, std::int64_t offset,
                                std::int64_t bytes_max);

// The bytes between where `asked` lies in a log of this size and where the piece begins.
std::int64_t log_bytes_left_out(std::int64_t asked, std::int64_t offset, std::int64_t size);

}  // namespace nightshift
