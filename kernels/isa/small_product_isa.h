// The product of two small matrices that lie in the cache, as attention needs it: row-major, the
// right side read through a Source that widens it. Include simd.h and define NS_ISA first. Each
// result is one accumulator that runs through k in order, whatever the number of rows.
#pragma once

#include <cstddef>

#include "kernels/isa/ops_isa.h"

namespace nightshift::kernels::NS_ISA {

// Accumulators that leave room for a row of b and an input.
constexpr int small_registers = lanes == 16 ? 24 : 12;

// Rows of float vectors, as scratch memory and a float32 cache hold them.
struct FloatRows {
  using Element = float;
  static constexpr int parts = 1;
  static VecF load_row(const float* p, int) { return load(p); }
  static VecF load_row_n(const float* p, int n) { return load_n(p, n); }
};

// Rows whose lanes are pairs of bfloat16: two steps of k in one row.
struct PairRows {
  using Element = float;
  static constexpr int parts = 2;
  static VecF load_row(const float* p, int part) {
    const VecF pairs = load(p);
    return part == 0 ? pair_low(pairs) : pair_high(pairs);
  }
  static VecF load_row_n(const float* p, int n) { return load_n(p, n); }
};

inline void prefetch_bytes(const char* p, std::size_t bytes) {
  constexpr std::size_t line = 64;
  for (std::size_t i = 0; i < bytes; i += line) _mm_prefetch(p + i, _MM_HINT_T0);
}

// c[rows, n] = start + a[rows, k] * b[k, n].
struct SmallProduct {
  const float* a = nullptr;
  int a_stride = 0;
  const void* b = nullptr;
  int b_stride = 0;
  int k = 0;
  float* c = nullptr;
  int c_stride = 0;
  const float* rescale = nullptr;   // start = c * rescale[row]; null: start = 0 or c
  bool accumulate = false;
  // Memory that will be needed next, asked for step by step of k: a burst of requests would stop
  // the core until they are served.
  const char* const* ahead = nullptr;
  int ahead_count = 0;
  std::size_t ahead_bytes = 0;
};

// tail: values of the last vector of b that exist, or `lanes`.
template <class Source, int MR, int NV, bool Tail>
inline void small_block(const SmallProduct& p, int row, int column, int tail) {
  const float* a = p.a + static_cast<std::size_t>(row) * p.a_stride;
  const auto* b = static_cast<const typename Source::Element*>(p.b) + column;
  float* c = p.c + static_cast<std::size_t>(row) * p.c_stride + column;
  const std::size_t a_stride = p.a_stride;
  const std::size_t b_stride = p.b_stride;
  VecF acc[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      acc[r][v] = p.accumulate ? load(c + static_cast<std::size_t>(r) * p.c_stride + v * lanes)
                               : zero();
      if (p.rescale != nullptr) acc[r][v] = acc[r][v] * set1(p.rescale[row + r]);
    }
  }
  for (int i = 0; i < p.k; i += Source::parts) {
#pragma GCC unroll 2
    for (int part = 0; part < Source::parts; ++part) {
      VecF weights[NV];
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) {
        weights[v] = Tail ? Source::load_row_n(b + v * lanes, tail)
                          : Source::load_row(b + v * lanes, part);
      }
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        const VecF input = set1(a[r * a_stride + i + part]);
#pragma GCC unroll 16
        for (int v = 0; v < NV; ++v) acc[r][v] = fma(input, weights[v], acc[r][v]);
      }
    }
    b += b_stride;
    if (column == 0 && i < p.ahead_count) prefetch_bytes(p.ahead[i], p.ahead_bytes);
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      store(c + static_cast<std::size_t>(r) * p.c_stride + v * lanes, acc[r][v]);
    }
  }
}

template <class Source, int MR, int NV, bool Tail>
inline void small_rows(const SmallProduct& p, int row, int rows, int column, int tail) {
  if (rows == MR) {
    small_block<Source, MR, NV, Tail>(p, row, column, tail);
  } else if constexpr (MR > 1) {
    small_rows<Source, MR - 1, NV, Tail>(p, row, rows, column, tail);
  }
}

template <class Source, int NV, bool Tail>
inline void small_columns(const SmallProduct& p, int rows, int column, int tail) {
  constexpr int widest = small_registers / 2;
  constexpr int most = small_registers / NV < widest ? small_registers / NV : widest;
  const int blocks = (rows + most - 1) / most;
  int row = 0;
  for (int i = 0; i < blocks; ++i) {
    const int share = (rows - row) / (blocks - i);
    small_rows<Source, most, NV, Tail>(p, row, share, column, tail);
    row += share;
  }
}

template <class Source>
inline void small_product(const SmallProduct& p, int rows, int n) {
  int column = 0;
  if (rows <= small_registers / 4) {
    for (; column + 4 * lanes <= n; column += 4 * lanes) {
      small_columns<Source, 4, false>(p, rows, column, lanes);
    }
  }
  for (; column + 2 * lanes <= n; column += 2 * lanes) {
    small_columns<Source, 2, false>(p, rows, column, lanes);
  }
  for (; column + lanes <= n; column += lanes) {
    small_columns<Source, 1, false>(p, rows, column, lanes);
  }
  if (column < n) small_columns<Source, 1, true>(p, rows, column, n - column);
}

}  // namespace nightshift::kernels::NS_ISA
