// What calibration knows of each linear's input, and its file calibration.json. Knows histograms
// and JSON; must not know engines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace nightshift {

// Counts of |x| in bins of equal width that grows with the data: beyond `bins_max` bins neighbours
// are merged and the width doubles, so that nothing is ever clipped while counting.
class AbsHistogram {
 public:
  static constexpr int bins_first = 2048;
  static constexpr int bins_max = 8192;

  // Makes room for values up to `abs_max`; the first call sets the width.
  void make_room(float abs_max);
  float width() const { return width_; }
  std::vector<std::uint64_t>& counts() { return counts_; }
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  std::uint64_t total() const;
  // The smallest bin edge below which at least `percent` of the values lie; 0 when empty or all
  // values are 0.
  float percentile(double percent) const;

 private:
  float width_ = 0;
  std::vector<std::uint64_t> counts_;
};

// Of one value that linears read.
struct InputStatistics {
  std::vector<std::string> ops;  // names of the ops that read it
  std::int64_t rows = 0;
  float abs_max = 0;
  float clip = 0;  // the percentile asked for
  std::vector<float> channel_abs_max;
};

struct Calibration {
  double percentile = 99.9;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::map<std::string, std::int64_t> samples_by_group;
  std::map<std::string, InputStatistics> inputs;                   // by value name
  std::map<std::string, std::vector<std::int64_t>> expert_tokens;  // by "layers.N"

  // The input of the op `name`, null when it was not calibrated.
  const InputStatistics* input_of(const std::string& op) const;
};

std::string to_json_text(const Calibration& calibration);
Result<Calibration> calibration_from_json(std::string_view text, const std::string& where);

}  // namespace nightshift
