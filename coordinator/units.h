// Numbers, sizes, durations and shares as people write them. Knows only text; must not know YAML or
// jobs. Every refusal says why and how to write it; `where` is left to the caller.
#pragma once

#include <cstdint>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

// "1024", "1e3" (whole after all). Refused with the reason: 0x10, 010, 1_000, 1,000, 22:00, 1.5.
Result<std::int64_t> parse_whole(std::string_view text);
// "99.9", "1e-3". Finite.
Result<double> parse_number(std::string_view text);
// "20GiB", "512 MiB", "10GB", "1.5TiB", "100B" in bytes. A bare number other than 0 is refused.
Result<std::int64_t> parse_size(std::string_view text);
// "300ms", "30s", "5m", "1h30m", "1.5h", "2d" in ms. A bare number other than 0 is refused.
Result<std::int64_t> parse_duration(std::string_view text);
// "2%" and "0.02" are both .02; from 0 to 1.
Result<double> parse_fraction(std::string_view text);
// Only true and false; yes, no, on, off, y, n are refused by name.
Result<bool> parse_boolean(std::string_view text);
// "22:00" -> minutes after midnight.
Result<int> parse_time_of_day(std::string_view text);

}  // namespace nightshift
