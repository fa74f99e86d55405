// Elementary functions on vectors, one source for every instruction set. Include simd.h and define
// NS_ISA first. Knows mathematics; must not know shapes or threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nightshift::kernels::NS_ISA {

// e^x, relative error below 1.5e-7. 0 below the smallest subnormal, infinity above the range, NaN
// for NaN. x = n ln 2 + r, |r| <= ln 2 / 2; e^r by a polynomial of degree 6.
inline VecF exp_of(VecF x) {
  constexpr float log2_e = 1.44269504f;
  constexpr float ln2_high = 0.693145752f;   // 16 significant bits: n * ln2_high is exact
  constexpr float ln2_low = 1.42860677e-6f;
  constexpr float highest = 89.0f;           // beyond overflow
  constexpr float lowest = -104.0f;          // beyond the last subnormal
  const VecF clamped = min_of(set1(highest), max_of(set1(lowest), x));
  const VecF n = round_even(clamped * set1(log2_e));
  VecF r = fnma(n, set1(ln2_high), clamped);
  r = fnma(n, set1(ln2_low), r);
  VecF p = set1(0.0013926213f);
  p = fma(p, r, set1(0.0083632031f));
  p = fma(p, r, set1(0.0416665561f));
  p = fma(p, r, set1(0.1666657626f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r * r, r) + set1(1.0f);
  return zero_below(x, set1(lowest), scale_by_pow2(p, n));
}

inline VecF silu_of(VecF x) { return x / (set1(1.0f) + exp_of(zero() - x)); }

// Cosine and sine of position * inv_freq[0 .. n), n <= lanes_d, good to 1e-13 before they are
// rounded to float. Reduction by pi/2 in two exact steps, then Taylor on [-pi/4, pi/4].
inline void cos_sin_block(double position, const double* inv_freq, int n, float* cosines,
                          float* sines) {
  constexpr double two_over_pi = 0.63661977236758134308;
  constexpr double half_pi = 1.57079632679489661923;
  constexpr double half_pi_rest = 6.12323399573676603587e-17;
  const VecD angle = set1_d(position) * load_dn(inv_freq, n);
  const VecD turns = round_even_d(angle * set1_d(two_over_pi));
  VecD r = fnma_d(turns, set1_d(half_pi), angle);
  r = fnma_d(turns, set1_d(half_pi_rest), r);
  const VecD r2 = r * r;
  VecD s = set1_d(1.0 / 6227020800.0);
  s = fma_d(s, r2, set1_d(-1.0 / 39916800.0));
  s = fma_d(s, r2, set1_d(1.0 / 362880.0));
  s = fma_d(s, r2, set1_d(-1.0 / 5040.0));
  s = fma_d(s, r2, set1_d(1.0 / 120.0));
  s = fma_d(s, r2, set1_d(-1.0 / 6.0));
  s = fma_d(s * r2, r, r);
  VecD c = set1_d(-1.0 / 87178291200.0);
  c = fma_d(c, r2, set1_d(1.0 / 479001600.0));
  c = fma_d(c, r2, set1_d(-1.0 / 3628800.0));
  c = fma_d(c, r2, set1_d(1.0 / 40320.0));
  c = fma_d(c, r2, set1_d(-1.0 / 720.0));
  c = fma_d(c, r2, set1_d(1.0 / 24.0));
  c = fma_d(c, r2, set1_d(-0.5));
  c = fma_d(c, r2, set1_d(1.0));
  float sine[lanes_d];
  float cosine[lanes_d];
  std::int32_t quadrant[lanes_d];
  store_f32(sine, s);
  store_f32(cosine, c);
  store_i32(quadrant, turns);
  for (int i = 0; i < n; ++i) {
    const bool swapped = (quadrant[i] & 1) != 0;
    const float a = swapped ? sine[i] : cosine[i];
    const float b = swapped ? cosine[i] : sine[i];
    cosines[i] = ((quadrant[i] + 1) & 2) != 0 ? -a : a;
    sines[i] = (quadrant[i] & 2) != 0 ? -b : b;
  }
}

// y = x / sqrt(mean(x^2) + eps) * weight. y may be x.
inline void norm_row(const float* x, int d, const float* weight, float eps, float* y) {
  VecF sum[2] = {zero(), zero()};
  int i = 0;
  for (; i + 2 * lanes <= d; i += 2 * lanes) {
    const VecF a = load(x + i);
    const VecF b = load(x + i + lanes);
    sum[0] = fma(a, a, sum[0]);
    sum[1] = fma(b, b, sum[1]);
  }
  for (; i < d; i += lanes) {
    const VecF a = load_n(x + i, d - i < lanes ? d - i : lanes);
    sum[0] = fma(a, a, sum[0]);
  }
  const float mean = sum_lanes(sum[0] + sum[1]) / static_cast<float>(d);
  const float factor = 1.0f / __builtin_sqrtf(mean + eps);
  for (i = 0; i + lanes <= d; i += lanes) {
    store(y + i, load(x + i) * set1(factor) * load(weight + i));
  }
  if (i < d) {
    const int n = d - i;
    store_n(y + i, load_n(x + i, n) * set1(factor) * load_n(weight + i, n), n);
  }
}

}  // namespace nightshift::kernels::NS_ISA
