// The clocks. The only file of the worker that asks what time it is; everything else is told.
#pragma once

#include <cstdint>
#include <string>

namespace nightshift {

// Milliseconds of a clock that never jumps; only differences mean something.
std::int64_t monotonic_ms();
// "2025-03-01T22:14:03.120Z", for people who read logs.
std::string wall_clock_text();

}  // namespace nightshift
