// The watchdog of a worker that hears nothing from its coordinator: the same limits, judged alone.
// Pure. While the coordinator is there it decides, and this is not asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "schema/job_spec.h"
#include "schema/messages.h"

namespace nightshift {

// Absent: could not be seen. Unknown never ends anything.
struct DiskSample {
  std::optional<std::int64_t> root_free_bytes;
  std::optional<std::int64_t> temp_free_bytes;
};

struct Verdict {
  Outcome outcome = Outcome::ok;  // ok: healthy, or only log/warn is asked for
  std::string reason;             // the value and the limit
};

// One look.
Verdict judge_alone(const AttemptPulse& pulse, const DiskSample& disk, const WatchdogSpec& spec,
                    std::int64_t wall_limit_ms);

// Ends only after the same verdict several looks in a row.
class CutOffWatch {
 public:
  static constexpr int looks = 3;
  static constexpr std::int64_t interval_ms = 5'000;

  std::optional<Verdict> on_look(const Verdict& verdict);
  void reset() { bad_ = 0; }

 private:
  Outcome last_ = Outcome::ok;
  int bad_ = 0;
};

}  // namespace nightshift
