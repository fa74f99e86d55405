// Operations on whole rows of logits. Include simd.h and define NS_ISA first.
#pragma once

#include "kernels/isa/lanes_isa.h"
#include "kernels/isa/math_isa.h"
#include "kernels/isa/ops_isa.h"
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

// Two passes: the value first, then the first place that holds it. The second pass stops early and
// spares the first one all index vectors.
inline bool row_max(const float* x, int v, float* largest, int* index) {
  const VecF lowest = set1(-__builtin_inff());
  VecF top[4] = {lowest, lowest, lowest, lowest};
  unsigned nan = 0;
  int i = 0;
  for (; i + 4 * lanes <= v; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const VecF value = load(x + i + j * lanes);
      nan |= nan_lanes(value);
      top[j] = max_of(value, top[j]);
    }
  }
  for_lanes(v - i, [&](int j, int n) {
    const VecF value = first_or(load_n(x + i + j, n), lowest, n);
    nan |= nan_lanes(value);
    top[0] = max_of(value, top[0]);
  });
  if (nan != 0) return false;
  *largest = max_lanes(max_of(max_of(top[0], top[1]), max_of(top[2], top[3])));
  const VecF wanted = set1(*largest);
  for (i = 0; i + lanes <= v; i += lanes) {
    const unsigned equal = equal_lanes(load(x + i), wanted);
    if (equal != 0) {
      *index = i + __builtin_ctz(equal);
      return true;
    }
  }
  while (i < v - 1 && x[i] != *largest) ++i;
  *index = i;
  return true;
}

// Sum of exp((x - largest) * inverse_temperature) in float64; the terms go to `out` unless null.
inline double row_exp(const float* x, int v, float largest, float inverse_temperature,
                      float* out) {
  const VecF top = set1(largest);
  const VecF factor = set1(inverse_temperature);
  VecD low = zero_d();
  VecD high = zero_d();
  for_lanes(v, [&](int i, int n) {
    const VecF e = first_or(exp_of((load_n(x + i, n) - top) * factor), zero(), n);
    if (out != nullptr) store_n(out + i, e, n);
    low = low + widen_low(e);
    high = high + widen_high(e);
  });
  return sum_lanes_d(low + high);
}

const SampleKernels& sample_kernels() {
  static constexpr SampleKernels kernels{row_max, row_exp};
  return kernels;
}

void log_likelihood(Context& context, const float* logits, int m, int v,
                    const std::int32_t* targets, double* out) {
  for_range(context, m, rows_grain(4 * v), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const float* x = logits + static_cast<std::size_t>(row) * v;
      float largest = 0.0f;
      int index = 0;
      if (!row_max(x, v, &largest, &index)) {
        out[row] = __builtin_nan("");
        continue;
      }
      const double total = row_exp(x, v, largest, 1.0f, nullptr);
      out[row] = static_cast<double>(x[targets[row]]) - largest - __builtin_log(total);
    }
  });
}

}  // namespace nightshift::kernels::NS_ISA
