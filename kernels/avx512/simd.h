// The vector vocabulary of the *_isa.h sources in AVX-512: 16 floats, 8 doubles. Knows intrinsics;
// must not know operations. Included only by files compiled with the AVX-512 flags.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nightshift::kernels::avx512 {

using VecF = __m512;
using VecD = __m512d;
constexpr int lanes = 16;
constexpr int lanes_d = 8;

// Lanes 0 .. n-1, for n in [0, 16].
inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline VecF set1(float x) { return _mm512_set1_ps(x); }
inline VecF zero() { return _mm512_setzero_ps(); }
inline VecF load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, VecF x) { _mm512_storeu_ps(p, x); }
// The first n lanes; the others read as zero and are not written.
inline VecF load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_n(float* p, VecF x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }

inline VecF fma(VecF a, VecF b, VecF c) { return _mm512_fmadd_ps(a, b, c); }
inline VecF fnma(VecF a, VecF b, VecF c) { return _mm512_fnmadd_ps(a, b, c); }
// Of a NaN and a number both give the second operand.
inline VecF min_of(VecF a, VecF b) { return _mm512_min_ps(a, b); }
inline VecF max_of(VecF a, VecF b) { return _mm512_max_ps(a, b); }
inline VecF abs_of(VecF x) { return _mm512_abs_ps(x); }
inline VecF round_even(VecF x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x * 2^n for whole n, through the subnormals to 0 and up to infinity.
inline VecF scale_by_pow2(VecF x, VecF n) { return _mm512_scalef_ps(x, n); }

inline float sum_lanes(VecF x) { return _mm512_reduce_add_ps(x); }
inline float max_lanes(VecF x) { return _mm512_reduce_max_ps(x); }
// Lane i is bit i.
inline unsigned nan_lanes(VecF x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
inline unsigned equal_lanes(VecF a, VecF b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline unsigned not_finite_lanes(VecF x) {
  return _mm512_cmp_ps_mask(abs_of(x), set1(__builtin_inff()), _CMP_NLT_UQ);
}
// value where x is not below bound (NaN included), else 0.
inline VecF zero_below(VecF x, VecF bound, VecF value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value);
}
// The first n lanes of x, `other` in the rest.
inline VecF first_or(VecF x, VecF other, int n) {
  return _mm512_mask_mov_ps(other, first_lanes(n), x);
}
inline void store_int(std::int32_t* p, VecF truncated) {
  _mm512_storeu_si512(p, _mm512_cvttps_epi32(truncated));
}

inline VecF widen_bf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline VecF load_bf16(const std::uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline VecF load_bf16_n(const std::uint16_t* p, int n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline __m256i narrow_bf16(VecF x) { return (__m256i)_mm512_cvtneps_pbh(x); }
inline void store_bf16(std::uint16_t* p, VecF x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x));
}
inline void store_bf16_n(std::uint16_t* p, VecF x, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(x));
}
inline VecF round_bf16(VecF x) { return widen_bf16(narrow_bf16(x)); }
// Each lane holds two bfloat16 values: the one at the lower address, the one at the higher.
inline VecF pair_low(VecF pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
inline VecF pair_high(VecF pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}

inline VecD set1_d(double x) { return _mm512_set1_pd(x); }
inline VecD zero_d() { return _mm512_setzero_pd(); }
inline VecD load_dn(const double* p, int n) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1u), p);
}
inline VecD fma_d(VecD a, VecD b, VecD c) { return _mm512_fmadd_pd(a, b, c); }
inline VecD fnma_d(VecD a, VecD b, VecD c) { return _mm512_fnmadd_pd(a, b, c); }
inline VecD round_even_d(VecD x) {
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store_f32(float* p, VecD x) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }
inline void store_i32(std::int32_t* p, VecD whole) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtpd_epi32(whole));
}
inline VecD widen_low(VecF x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
inline VecD widen_high(VecF x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
inline double sum_lanes_d(VecD x) { return _mm512_reduce_add_pd(x); }

// rows[i] lane j <-> rows[j] lane i. Inlined, so that the rows stay in registers.
__attribute__((always_inline)) inline void transpose(VecF rows[lanes]) {
  VecF t[lanes];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(t[4 * i]);
    const __m512d b = _mm512_castps_pd(t[4 * i + 1]);
    const __m512d c = _mm512_castps_pd(t[4 * i + 2]);
    const __m512d d = _mm512_castps_pd(t[4 * i + 3]);
    rows[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    rows[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    rows[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    rows[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    rows[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

}  // namespace nightshift::kernels::avx512
