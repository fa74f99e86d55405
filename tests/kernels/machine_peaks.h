// Loops that do nothing but multiply and add, in registers: what one thread of this machine can
// reach. Knows instructions; must not know the kernels. The caller asks the CPU first.
#pragma once

#include <immintrin.h>

namespace nightshift::kernels::test {

// Each loop does peak_rounds * chains vector operations.
constexpr int peak_rounds = 20000;
constexpr int chains = 24;
inline volatile float peak_sink;
inline volatile int peak_seed = 1;

__attribute__((target("avx2,fma"))) inline void fma_avx2() {
  const __m256 x = _mm256_set1_ps(static_cast<float>(peak_seed));
  __m256 acc[12];
  for (__m256& a : acc) a = x;
  for (int i = 0; i < 2 * peak_rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = _mm256_fmadd_ps(x, x, acc[j]);
  }
  for (const __m256& a : acc) peak_sink = _mm256_cvtss_f32(a);
}

__attribute__((target("avx512f"))) inline void fma_avx512() {
  const __m512 x = _mm512_set1_ps(static_cast<float>(peak_seed));
  __m512 acc[chains];
  for (__m512& a : acc) a = x;
  for (int i = 0; i < peak_rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < chains; ++j) acc[j] = _mm512_fmadd_ps(x, x, acc[j]);
  }
  for (const __m512& a : acc) peak_sink = _mm512_cvtss_f32(a);
}

__attribute__((target("avx512f,avx512bf16"))) inline void dot_bf16_avx512() {
  const __m512i bits = _mm512_set1_epi16(static_cast<short>(0x3f80 + peak_seed));
  __m512 acc[chains];
  for (__m512& a : acc) a = _mm512_castsi512_ps(bits);
  for (int i = 0; i < peak_rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < chains; ++j) {
      acc[j] = _mm512_dpbf16_ps(acc[j], (__m512bh)bits, (__m512bh)bits);
    }
  }
  for (const __m512& a : acc) peak_sink = _mm512_cvtss_f32(a);
}

__attribute__((target("avx512f,avx512vnni"))) inline void dot_int8_avx512() {
  using Ints = int __attribute__((vector_size(64)));
  const __m512i x = _mm512_set1_epi8(static_cast<char>(peak_seed));
  Ints acc[chains];
  for (Ints& a : acc) a = (Ints)x;
  for (int i = 0; i < peak_rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < chains; ++j) {
      acc[j] = (Ints)_mm512_dpbusd_epi32((__m512i)acc[j], x, x);
    }
  }
  for (const Ints& a : acc) peak_sink = static_cast<float>(a[0]);
}

}  // namespace nightshift::kernels::test
