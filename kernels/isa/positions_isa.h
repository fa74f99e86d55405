// Rotary positions and writing the KV cache. Include simd.h and define NS_ISA first.
#pragma once

#include "kernels/isa/lanes_isa.h"
#include "kernels/isa/math_isa.h"
#include "kernels/isa/ops_isa.h"
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

// Half a head of cosines, then half a head of sines, for one position.
inline void fill_angles(int position, const double* inv_freq, int half, float* table) {
  for (int i = 0; i < half; i += lanes_d) {
    const int n = half - i < lanes_d ? half - i : lanes_d;
    cos_sin_block(static_cast<double>(position), inv_freq + i, n, table + i, table + half + i);
  }
}

inline void rotate_head(float* x, int half, const float* table) {
  for_lanes(half, [&](int i, int n) {
    const VecF c = load_n(table + i, n);
    const VecF s = load_n(table + half + i, n);
    const VecF low = load_n(x + i, n);
    const VecF high = load_n(x + half + i, n);
    store_n(x + i, low * c - high * s, n);
    store_n(x + half + i, high * c + low * s, n);
  });
}

inline void write_cache_row(const KvLayer& cache, void* memory, std::size_t first,
                            const float* x) {
  if (cache.format == KvFormat::f32) {
    __builtin_memcpy(static_cast<float*>(memory) + first, x, sizeof(float) * cache.head_dim);
    return;
  }
  std::uint16_t* out = static_cast<std::uint16_t*>(memory) + first;
  int i = 0;
  for (; i + lanes <= cache.head_dim; i += lanes) store_bf16(out + i, load(x + i));
  if (i < cache.head_dim) {
    const int n = cache.head_dim - i;
    store_bf16_n(out + i, load_n(x + i, n), n);
  }
}

// Rows [begin, end) of a batch, cut by segment: visit(segment, row within it).
template <class Visit>
inline void for_segment_rows(const Segment* segments, int count, int begin, int end,
                             const Visit& visit) {
  for (int s = 0; s < count; ++s) {
    const int first = segments[s].first_row;
    const int from = begin > first ? begin - first : 0;
    const int to = end - first < segments[s].rows ? end - first : segments[s].rows;
    for (int row = from; row < to; ++row) visit(segments[s], row);
  }
}

inline int batch_rows(const Segment* segments, int count) {
  int rows = 0;
  for (int s = 0; s < count; ++s) {
    const int end = segments[s].first_row + segments[s].rows;
    if (end > rows) rows = end;
  }
  return rows;
}

void rope(Context& context, float* x, int m, int heads, int head_dim,
          const std::int32_t* positions, const double* inv_freq) {
  const int half = head_dim / 2;
  const int parts = lane_count(context);
  auto* tables = static_cast<float*>(
      context.scratch(0, sizeof(float) * static_cast<std::size_t>(head_dim) * parts));
  const int tasks = m * head_dim * heads >= 4 * least_values ? 4 * parts : 1;
  for_tasks(context, tasks, parts, [&](int task, int lane) {
    float* table = tables + static_cast<std::size_t>(lane) * head_dim;
    const int end = static_cast<int>(static_cast<std::int64_t>(m) * (task + 1) / tasks);
    for (int row = static_cast<int>(static_cast<std::int64_t>(m) * task / tasks); row < end;
         ++row) {
      fill_angles(positions[row], inv_freq, half, table);
      float* first = x + static_cast<std::size_t>(row) * heads * head_dim;
      for (int h = 0; h < heads; ++h) rotate_head(first + h * head_dim, half, table);
    }
  });
}

void kv_append(Context& context, const float* k, const float* v, const Segment* segments,
               int count, const KvLayer& cache) {
  const int width = cache.kv_heads * cache.head_dim;
  for_range(context, batch_rows(segments, count), rows_grain(2 * width), [&](int begin, int end) {
    for_segment_rows(segments, count, begin, end, [&](const Segment& segment, int row) {
      const std::size_t first = static_cast<std::size_t>(segment.first_row + row) * width;
      for (int head = 0; head < cache.kv_heads; ++head) {
        const std::size_t target = cache_row(cache, segment, segment.start + row, head);
        write_cache_row(cache, cache.k, target, k + first + head * cache.head_dim);
        write_cache_row(cache, cache.v, target, v + first + head * cache.head_dim);
      }
    });
  });
}

void qk_norm_rope_append(Context& context, const float* qkv, const Segment* segments, int count,
                         int heads, const float* q_norm, const float* k_norm, float eps,
                         const double* inv_freq, const KvLayer& cache, float* q) {
  const int d = cache.head_dim;
  const int width = (heads + 2 * cache.kv_heads) * d;
  const int rows = batch_rows(segments, count);
  const int parts = lane_count(context);
  auto* scratch = static_cast<float*>(
      context.scratch(0, sizeof(float) * 2 * static_cast<std::size_t>(d) * parts));
  const int tasks = static_cast<std::int64_t>(rows) * width >= least_values ? 4 * parts : 1;
  for_tasks(context, tasks, parts, [&](int task, int lane) {
    float* table = scratch + static_cast<std::size_t>(lane) * 2 * d;
    float* turned = table + d;
    const auto turn = [&](const float* source, const float* norm, float* out) {
      if (norm != nullptr) {
        norm_row(source, d, norm, eps, out);
      } else {
        __builtin_memcpy(out, source, sizeof(float) * d);
      }
      rotate_head(out, d / 2, table);
    };
    const int begin = static_cast<int>(static_cast<std::int64_t>(rows) * task / tasks);
    const int end = static_cast<int>(static_cast<std::int64_t>(rows) * (task + 1) / tasks);
    for_segment_rows(segments, count, begin, end, [&](const Segment& segment, int i) {
      const std::size_t row = static_cast<std::size_t>(segment.first_row) + i;
      const int position = segment.start + i;
      const float* source = qkv + row * width;
      fill_angles(position, inv_freq, d / 2, table);
      for (int h = 0; h < heads; ++h, source += d) turn(source, q_norm, q + (row * heads + h) * d);
      for (int h = 0; h < cache.kv_heads; ++h, source += d) {
        const std::size_t target = cache_row(cache, segment, position, h);
        turn(source, k_norm, turned);
        write_cache_row(cache, cache.k, target, turned);
        write_cache_row(cache, cache.v, target, source + cache.kv_heads * d);
      }
    });
  });
}

}  // namespace nightshift::kernels::NS_ISA
