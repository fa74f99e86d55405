#include "stages/night/quantize_rows.h"

#include <algorithm>
#include <cmath>

#include "stages/model_io/float_formats.h"

namespace nightshift {

namespace {
// 2^-126, the least normal number: rows of zeros, or nearly so, keep a finite scale.
constexpr float least_scale = 1.17549435e-38f;
}  // namespace

Int8Rows quantize_rows(const float* w, int n, int k) {
  Int8Rows rows;
  rows.values.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(k));
  for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r) {
    const float* row = w + r * static_cast<std::size_t>(k);
    float largest = 0;
    for (int c = 0; c < k; ++c) largest = std::max(largest, std::fabs(row[c]));
    std::uint16_t bits = bf16_of(std::max(largest / 127.5f, least_scale));
    // Rounded up where nearest would leave the largest value out of reach.
    if (float_of_bf16(bits) * 127.5f < largest) ++bits;
    const float scale = float_of_bf16(bits);
    rows.scale_bits.push_back(bits);
    rows.scale.push_back(scale);
    std::int8_t* q = rows.values.data() + r * static_cast<std::size_t>(k);
    for (int c = 0; c < k; ++c) {
      q[c] = static_cast<std::int8_t>(std::clamp(std::nearbyint(row[c] / scale), -128.0f, 127.0f));
    }
  }
  return rows;
}

}  // namespace nightshift
