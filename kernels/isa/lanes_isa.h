// Loops over lanes and the addressing that several operations share. Include simd.h and define
// NS_ISA first. Everything here is inline; the operations themselves live in one file each.
#pragma once

#include "kernels/isa/ops_isa.h"

namespace nightshift::kernels::NS_ISA {

// Below this many values a second thread costs more than it brings.
constexpr int least_values = 16 * 1024;

inline int rows_grain(int d) { return least_values / (d > 0 ? d : 1) + 1; }

// Calls step(first, lanes in use) over `count` values.
template <class Step>
inline void for_lanes(int count, const Step& step) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) step(i, lanes);
  if (i < count) step(i, count - i);
}

// y[i] = f(a[i], b[i]).
template <class Function>
inline void map_row(const float* a, const float* b, int count, float* y, const Function& f) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) store(y + i, f(load(a + i), load(b + i)));
  if (i < count) {
    const int n = count - i;
    store_n(y + i, f(load_n(a + i, n), load_n(b + i, n)), n);
  }
}

// Where a position of a segment lies in the cache, in elements.
inline std::size_t cache_row(const KvLayer& cache, const Segment& segment, int position,
                             int head) {
  const std::size_t block = segment.blocks[position / cache.block_tokens];
  return ((block * cache.kv_heads + head) * cache.block_tokens +
          position % cache.block_tokens) * cache.head_dim;
}

}  // namespace nightshift::kernels::NS_ISA
