// Round-to-nearest int8, symmetric per output row. Knows numbers only.
#pragma once

#include <cstdint>
#include <vector>

namespace nightshift {

// w[row, :] = values[row, :] * scale[row] within half a step. `scale` is what the stored bf16 scale
// widens to: it is rounded first and the values are rounded against it, so that what is written and
// what was measured are the same numbers. max|w| / 127.5, range [-128, 127]
// (compressed-tensors, symmetric); always finite and above zero.
struct Int8Rows {
  std::vector<std::int8_t> values;        // [n, k]
  std::vector<std::uint16_t> scale_bits;  // [n], bf16
  std::vector<float> scale;               // [n], the same widened
};
Int8Rows quantize_rows(const float* w, int n, int k);

}  // namespace nightshift
