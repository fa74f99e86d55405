// The vector vocabulary of the *_isa.h sources in AVX2: 8 floats, 4 doubles. Knows intrinsics; must
// not know operations. Included only by files compiled with the AVX2 flags.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nightshift::kernels::avx2 {

using VecF = __m256;
using VecD = __m256d;
constexpr int lanes = 8;
constexpr int lanes_d = 4;

// Lanes 0 .. n-1, for n in [0, 8].
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline VecF set1(float x) { return _mm256_set1_ps(x); }
inline VecF zero() { return _mm256_setzero_ps(); }
inline VecF load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, VecF x) { _mm256_storeu_ps(p, x); }
// The first n lanes; the others read as zero and are not written.
inline VecF load_n(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
inline void store_n(float* p, VecF x, int n) { _mm256_maskstore_ps(p, first_lanes(n), x); }

inline VecF fma(VecF a, VecF b, VecF c) { return _mm256_fmadd_ps(a, b, c); }
inline VecF fnma(VecF a, VecF b, VecF c) { return _mm256_fnmadd_ps(a, b, c); }
// Of a NaN and a number both give the second operand.
inline VecF min_of(VecF a, VecF b) { return _mm256_min_ps(a, b); }
inline VecF max_of(VecF a, VecF b) { return _mm256_max_ps(a, b); }
inline VecF abs_of(VecF x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
inline VecF round_even(VecF x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline VecF pow2_of(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// x * 2^n for whole n in [-250, 250], through the subnormals to 0 and up to infinity. In two
// factors, since 2^128 and 2^-127 alone have no normal number.
inline VecF scale_by_pow2(VecF x, VecF n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(x, pow2_of(half)), pow2_of(_mm256_sub_epi32(whole, half)));
}

inline float sum_lanes(VecF x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float max_lanes(VecF x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
// Lane i is bit i.
inline unsigned nan_lanes(VecF x) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline unsigned equal_lanes(VecF a, VecF b) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
inline unsigned not_finite_lanes(VecF x) {
  const VecF mask = _mm256_cmp_ps(abs_of(x), set1(__builtin_inff()), _CMP_NLT_UQ);
  return static_cast<unsigned>(_mm256_movemask_ps(mask));
}
// value where x is not below bound (NaN included), else 0.
inline VecF zero_below(VecF x, VecF bound, VecF value) {
  return _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ), value);
}
// The first n lanes of x, `other` in the rest.
inline VecF first_or(VecF x, VecF other, int n) {
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(first_lanes(n)));
}
inline void store_int(std::int32_t* p, VecF truncated) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_cvttps_epi32(truncated));
}

inline VecF widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline VecF load_bf16(const std::uint16_t* p) {
  return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline VecF load_bf16_n(const std::uint16_t* p, int n) {
  alignas(16) std::uint16_t buffer[lanes] = {};
  for (int i = 0; i < n; ++i) buffer[i] = p[i];
  return load_bf16(buffer);
}
// Round to nearest even in the upper halves; a NaN keeps its upper half and becomes quiet.
inline VecF round_bf16(VecF x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_blendv_epi8(up, quiet, nan);
  return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-65536)));
}
inline __m128i narrow_bf16(VecF x) {
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(round_bf16(x)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
inline void store_bf16(std::uint16_t* p, VecF x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x));
}
inline void store_bf16_n(std::uint16_t* p, VecF x, int n) {
  alignas(16) std::uint16_t buffer[lanes];
  store_bf16(buffer, x);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}
// Each lane holds two bfloat16 values: the one at the lower address, the one at the higher.
inline VecF pair_low(VecF pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
inline VecF pair_high(VecF pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_castps_si256(pairs), _mm256_set1_epi32(-65536)));
}

inline VecD set1_d(double x) { return _mm256_set1_pd(x); }
inline VecD zero_d() { return _mm256_setzero_pd(); }
inline VecD load_dn(const double* p, int n) {
  const __m256i mask =
      _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  return _mm256_maskload_pd(p, mask);
}
inline VecD fma_d(VecD a, VecD b, VecD c) { return _mm256_fmadd_pd(a, b, c); }
inline VecD fnma_d(VecD a, VecD b, VecD c) { return _mm256_fnmadd_pd(a, b, c); }
inline VecD round_even_d(VecD x) {
  return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store_f32(float* p, VecD x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
inline void store_i32(std::int32_t* p, VecD whole) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtpd_epi32(whole));
}
inline VecD widen_low(VecF x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline VecD widen_high(VecF x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
inline double sum_lanes_d(VecD x) {
  const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

// rows[i] lane j <-> rows[j] lane i. Inlined, so that the rows stay in registers.
__attribute__((always_inline)) inline void transpose(VecF rows[lanes]) {
  VecF t[lanes];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    rows[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    rows[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    rows[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    rows[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = t[i];
}

}  // namespace nightshift::kernels::avx2
