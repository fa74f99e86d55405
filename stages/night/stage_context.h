// What a running stage knows and says: its order, its folders, and the report pipe. Knows the stage
// contract (schema/stage_contract.h); must not know models.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "schema/json_fwd.h"
#include "schema/stage_contract.h"

namespace nightshift {

// Writes report lines to the worker's pipe, or to stderr where there is none (by hand). A pipe that
// is gone is ignored: the worker's end is found out by other means. Progress is written at most
// five times a second.
class StageReporter {
 public:
  // fd < 0: none.
  explicit StageReporter(int fd) : fd_(fd) {}

  void progress(std::int64_t done, std::int64_t of, const std::string& unit, double rate = 0,
                const std::string& rate_unit = "");
  // The stage does this now, and may be silent for `quiet_s`.
  void phase(const std::string& name, double quiet_s = 0);
  void metric(const std::string& name, double value, const std::string& unit,
              const std::string& model, const std::string& group = "");
  void note(const std::string& text);
  void checkpoint(const std::string& name, std::int64_t done);
  void red_line(const RedLineResult& result);
  void error(const Error& error);

 private:
  void write(const Report& report);

  int fd_;
  std::int64_t last_progress_ms_ = -1;
};

struct StageContext {
  StageOrder order;
  std::string out;    // folder of the checkpoint to leave
  std::string state;  // partial work, kept between attempts
  StageReporter& report;

  // The checkpoint that this stage goes on from: that of the first stage it needs.
  Result<std::string> input() const;
};

// How a stage ended, when nothing went wrong: done, or done with a red line crossed.
enum class StageEnd { ok, red_line };

// Reads the contract's variables and spec.json.
Result<StageContext> open_stage_context(StageReporter& report);

}  // namespace nightshift
