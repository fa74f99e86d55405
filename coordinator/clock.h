// Time as the coordinator sees it. The only place that reads a clock; everything else gets `Now`.
#pragma once

#include <chrono>
#include <cstdint>

namespace nightshift {

// Durations and leases use mono_ms, which never jumps; wall_ms is for people.
struct Now {
  std::int64_t mono_ms = 0;
  std::int64_t wall_ms = 0;   // since 1970
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Now now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Now now() const override {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    return {
        duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(),
        duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
  }
};

}  // namespace nightshift
