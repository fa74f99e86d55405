// Operations on rows, one source for every instruction set. Include simd.h and define NS_ISA first.
#pragma once

#include "kernels/isa/lanes_isa.h"
#include "kernels/isa/math_isa.h"
#include "kernels/isa/ops_isa.h"
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

// map_row over `count` values on all threads.
template <class Function>
inline void map_values(Context& context, const float* a, const float* b, std::size_t count,
                       float* y, const Function& f) {
  constexpr std::size_t block = 4096;
  const int blocks = static_cast<int>((count + block - 1) / block);
  for_range(context, blocks, least_values / static_cast<int>(block), [&](int begin, int end) {
    const std::size_t first = begin * block;
    const std::size_t last = end * block < count ? end * block : count;
    for (std::size_t i = first; i < last; i += block) {
      const int n = static_cast<int>(last - i < block ? last - i : block);
      map_row(a + i, b + i, n, y + i, f);
    }
  });
}

void add(Context& context, float* y, const float* x, std::size_t count) {
  map_values(context, y, x, count, y, [](VecF a, VecF b) { return a + b; });
}

void mul(Context& context, float* y, const float* x, std::size_t count) {
  map_values(context, y, x, count, y, [](VecF a, VecF b) { return a * b; });
}

void silu(Context& context, const float* x, std::size_t count, float* y) {
  map_values(context, x, x, count, y, [](VecF a, VecF) { return silu_of(a); });
}

void silu_mul(const float* gate, const float* up, int count, float* y) {
  map_row(gate, up, count, y, [](VecF g, VecF u) { return silu_of(g) * u; });
}

void embed(Context& context, const std::int32_t* ids, int m, const std::uint16_t* table_bf16,
           const float* table_f32, int d, float* y) {
  for_range(context, m, rows_grain(d), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const std::size_t first = static_cast<std::size_t>(ids[row]) * d;
      float* out = y + static_cast<std::size_t>(row) * d;
      if (table_f32 != nullptr) {
        for_lanes(d, [&](int i, int n) { store_n(out + i, load_n(table_f32 + first + i, n), n); });
      } else {
        for_lanes(d, [&](int i, int n) {
          const std::uint16_t* source = table_bf16 + first + i;
          if (n == lanes) {
            store(out + i, load_bf16(source));
          } else {
            store_n(out + i, load_bf16_n(source, n), n);
          }
        });
      }
    }
  });
}

void rms_norm(Context& context, const float* x, int m, int d, const float* weight, float eps,
              float* y) {
  for_range(context, m, rows_grain(d), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const std::size_t first = static_cast<std::size_t>(row) * d;
      norm_row(x + first, d, weight, eps, y + first);
    }
  });
}

void add_rms_norm(Context& context, float* residual, const float* x, int m, int d,
                  const float* weight, float eps, float* y) {
  for_range(context, m, rows_grain(d), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const std::size_t first = static_cast<std::size_t>(row) * d;
      float* sum = residual + first;
      map_row(sum, x + first, d, sum, [](VecF a, VecF b) { return a + b; });
      norm_row(sum, d, weight, eps, y + first);
    }
  });
}

bool channel_abs_max(Context& context, const float* x, int m, int d, float* channel_max) {
  int not_finite = 0;
  for_range(context, d, (least_values / (m > 0 ? m : 1) / lanes + 1) * lanes,
            [&](int begin, int end) {
    unsigned seen = 0;
    for_lanes(end - begin, [&](int i, int n) {
      const float* column = x + begin + i;
      VecF largest = load_n(channel_max + begin + i, n);
      for (int row = 0; row < m; ++row) {
        const VecF value = load_n(column + static_cast<std::size_t>(row) * d, n);
        seen |= not_finite_lanes(value);
        largest = max_of(abs_of(value), largest);
      }
      store_n(channel_max + begin + i, largest, n);
    });
    if (seen != 0) __atomic_store_n(&not_finite, 1, __ATOMIC_RELAXED);
  });
  return not_finite == 0;
}

// Each piece counts into its own table, the tables are added at the end.
void abs_histogram(Context& context, const float* x, std::size_t count, float width, int bins,
                   std::uint64_t* counts) {
  constexpr int block = 512;
  const int lane_total = lane_count(context);
  const std::size_t blocks = (count + block - 1) / block;
  const int parts = blocks < static_cast<std::size_t>(lane_total) ? static_cast<int>(blocks)
                                                                  : lane_total;
  auto* tables = static_cast<std::uint64_t*>(
      context.scratch(0, sizeof(std::uint64_t) * bins * (parts > 0 ? parts : 1)));
  for_tasks(context, parts, lane_total, [&](int part, int) {
    std::uint64_t* table = tables + static_cast<std::size_t>(part) * bins;
    for (int i = 0; i < bins; ++i) table[i] = 0;
    std::int32_t index[lanes];
    const std::size_t first = blocks * part / parts * block;
    const std::size_t next = blocks * (part + 1) / parts * block;
    const std::size_t last = next < count ? next : count;
    const VecF top = set1(static_cast<float>(bins - 1));
    for (std::size_t i = first; i < last; i += lanes) {
      const int n = static_cast<int>(last - i < lanes ? last - i : lanes);
      const VecF bin = abs_of(load_n(x + i, n)) / set1(width);
      const unsigned nan = nan_lanes(bin);
      store_int(index, min_of(bin, top));
      for (int j = 0; j < n; ++j) {
        if ((nan >> j & 1u) == 0) ++table[index[j]];
      }
    }
  });
  for (int part = 0; part < parts; ++part) {
    const std::uint64_t* table = tables + static_cast<std::size_t>(part) * bins;
    for (int i = 0; i < bins; ++i) counts[i] += table[i];
  }
}

}  // namespace nightshift::kernels::NS_ISA
