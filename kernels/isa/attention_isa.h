// Causal attention over a blocked KV cache. Include simd.h and define NS_ISA first.
//
// A task is one KV head and a run of query rows of one segment: all query heads of that KV head, so
// that keys and values are read once for the whole group. It walks the keys in tiles of `key_tile`
// that start at multiples of it from position 0, with a running maximum and sum (online softmax).
// A single decode row is a task of one row and takes the same tiles, the same sums in the same
// order: its result equals, bit for bit, that of the same row within a prefill.
#pragma once

#include "kernels/isa/lanes_isa.h"
#include "kernels/isa/math_isa.h"
#include "kernels/isa/ops_isa.h"
#include "kernels/isa/small_product_isa.h"
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

constexpr int key_tile = 64;
// Query rows times query heads of a group that share one tile of keys.
constexpr int query_tile = 48;

struct AttentionTask {
  int segment = 0;
  int row = 0;
  int rows = 0;
  int kv_head = 0;
};

struct AttentionCall {
  const float* q = nullptr;
  const Segment* segments = nullptr;
  int heads = 0;
  const KvLayer* cache = nullptr;
  float* y = nullptr;
  int padded = 0;   // head_dim in whole vectors
};

// Scratch of one lane; every row count is group * rows of the task.
struct AttentionScratch {
  float* q = nullptr;        // [rows, padded], scaled
  float* keys = nullptr;     // [padded, key_tile], transposed, by element or by pair
  float* scores = nullptr;   // [rows, key_tile]
  float* out = nullptr;      // [rows, padded]
  float* largest = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* rescale = nullptr;  // [rows]
};

inline std::size_t scratch_floats(int rows, int padded) {
  return static_cast<std::size_t>(rows) * (2 * padded + key_tile + 3 * lanes) +
         static_cast<std::size_t>(padded) * key_tile;
}

inline AttentionScratch split_scratch(float* memory, int rows, int padded) {
  AttentionScratch s;
  s.keys = memory;
  s.q = s.keys + static_cast<std::size_t>(padded) * key_tile;
  s.scores = s.q + static_cast<std::size_t>(rows) * padded;
  s.out = s.scores + static_cast<std::size_t>(rows) * key_tile;
  s.largest = s.out + static_cast<std::size_t>(rows) * padded;
  s.sum = s.largest + rows;
  s.rescale = s.sum + rows;
  return s;
}

// ---- How keys and values are read -----------------------------------------------------------

// `lanes` keys, each `words` 32-bit words long, become the columns of `keys`; with Widen, each word
// is a pair of bfloat16 and becomes two rows.
template <bool Widen>
inline void transpose_words(const char* const* rows, int words, float* keys) {
  for (int i = 0; i < words; i += lanes) {
    const int n = words - i < lanes ? words - i : lanes;
    VecF t[lanes];
#pragma GCC unroll 16
    for (int j = 0; j < lanes; ++j) {
      t[j] = load_n(reinterpret_cast<const float*>(rows[j]) + i, n);
    }
    transpose(t);
    float* out = keys + static_cast<std::size_t>(i) * (Widen ? 2 : 1) * key_tile;
#pragma GCC unroll 16
    for (int j = 0; j < lanes; ++j) {
      if (Widen && j >= n) break;
      store(out, Widen ? pair_low(t[j]) : t[j]);
      if (Widen) store(out + key_tile, pair_high(t[j]));
      out += (Widen ? 2 : 1) * key_tile;
    }
  }
}

struct FloatCache : FloatRows {
  using FewKeys = FloatRows;
  static constexpr bool widen = false;
};

// Keys travel as pairs of elements. Few query rows widen them where they multiply; many would do so
// again and again, and find them widened.
struct BfloatCache {
  using Element = std::uint16_t;
  using FewKeys = PairRows;
  static constexpr bool widen = true;
  static constexpr int parts = 1;
  static VecF load_row(const std::uint16_t* p, int) { return load_bf16(p); }
  static VecF load_row_n(const std::uint16_t* p, int n) { return load_bf16_n(p, n); }
};

// ---- One task -------------------------------------------------------------------------------

// Where the keys of one tile lie; the values lie at the same distance from the start of `v`.
struct KeyRows {
  const char* row[key_tile];
  int count = 0;
};

template <class Cache>
inline void find_keys(const KvLayer& cache, const Segment& segment, int head, int first, int end,
                      KeyRows& keys) {
  const std::size_t row_bytes = cache.head_dim * sizeof(typename Cache::Element);
  keys.count = end - first < key_tile ? end - first : key_tile;
  int t = 0;
  while (t < keys.count) {
    const int position = first + t;
    const int left = cache.block_tokens - position % cache.block_tokens;
    const int run = left < keys.count - t ? left : keys.count - t;
    const char* row =
        reinterpret_cast<const char*>(static_cast<const typename Cache::Element*>(cache.k) +
                                      cache_row(cache, segment, position, head));
    for (int i = 0; i < run; ++i) keys.row[t + i] = row + row_bytes * i;
    t += run;
  }
}

// The tile's keys as columns of scratch. The columns that fill up the last vector repeat its last
// key; their scores are masked. Asks for the next tile's values on the way.
template <class Cache, bool Widen>
inline void load_keys(const KvLayer& cache, KeyRows& keys, const KeyRows& next, float* columns) {
  const std::size_t row_bytes = cache.head_dim * sizeof(typename Cache::Element);
  const std::ptrdiff_t to_values =
      static_cast<const char*>(cache.v) - static_cast<const char*>(cache.k);
  for (int t = keys.count; t % lanes != 0; ++t) keys.row[t] = keys.row[keys.count - 1];
  for (int i = 0; i < keys.count; i += lanes) {
    for (int j = i; j < next.count && j < i + lanes; ++j) {
      prefetch_bytes(next.row[j] + to_values, row_bytes);
    }
    transpose_words<Widen>(keys.row + i, static_cast<int>(row_bytes / sizeof(float)), columns + i);
  }
}

// scores = queries * keys.
template <class Cache>
inline void score_keys(const AttentionCall& call, KeyRows& keys, const KeyRows& next, int rows,
                       const AttentionScratch& s) {
  SmallProduct p;
  p.a = s.q;
  p.a_stride = call.padded;
  p.b = s.keys;
  p.b_stride = key_tile;
  p.k = call.cache->head_dim;
  p.c = s.scores;
  p.c_stride = key_tile;
  const int columns = (keys.count + lanes - 1) / lanes * lanes;
  if (rows <= small_registers / 2) {
    load_keys<Cache, false>(*call.cache, keys, next, s.keys);
    small_product<typename Cache::FewKeys>(p, rows, columns);
  } else {
    load_keys<Cache, Cache::widen>(*call.cache, keys, next, s.keys);
    small_product<FloatRows>(p, rows, columns);
  }
}

// out = out * rescale + scores * values, run of the cache by run. Asks for the next tile's keys.
template <class Cache>
inline void add_values(const AttentionCall& call, const KeyRows& keys, const KeyRows& next,
                       int rows, const AttentionScratch& s) {
  const KvLayer& cache = *call.cache;
  const std::ptrdiff_t row_bytes = cache.head_dim * sizeof(typename Cache::Element);
  SmallProduct p;
  p.a_stride = key_tile;
  p.b_stride = cache.head_dim;
  p.c = s.out;
  p.c_stride = call.padded;
  p.rescale = s.rescale;
  p.accumulate = true;
  p.ahead_bytes = row_bytes;
  int t = 0;
  while (t < keys.count) {
    p.k = 1;
    while (t + p.k < keys.count && keys.row[t + p.k] == keys.row[t] + row_bytes * p.k) ++p.k;
    p.a = s.scores + t;
    p.b = keys.row[t] + (static_cast<const char*>(cache.v) - static_cast<const char*>(cache.k));
    p.ahead = next.row + t;
    p.ahead_count = next.count - t < p.k ? next.count - t : p.k;
    small_product<Cache>(p, rows, cache.head_dim);
    p.rescale = nullptr;
    t += p.k;
  }
}

// Turns a row of scores into weights relative to the new running maximum. Keys past `valid` get 0.
inline void soften_row(float* scores, int valid, int count, float* largest, float* sum,
                       float* rescale) {
  *rescale = 1.0f;
  if (valid <= 0) {
    for_lanes(count, [&](int i, int n) { store_n(scores + i, zero(), n); });
    return;
  }
  if (valid > count) valid = count;
  const VecF lowest = set1(-__builtin_inff());
  VecF top = set1(*largest);
  for_lanes(valid, [&](int i, int n) {
    top = max_of(first_or(load(scores + i), lowest, n), top);
  });
  const float now = max_lanes(top);
  if (now != *largest) {
    // From minus infinity this is 0, and what it rescales is 0.
    *rescale = max_lanes(exp_of(set1(*largest - now)));
    *largest = now;
  }
  VecF total = zero();
  for (int i = 0; i < count; i += lanes) {
    const int n = valid - i < 0 ? 0 : valid - i < lanes ? valid - i : lanes;
    const VecF weight = first_or(exp_of(load(scores + i) - set1(now)), zero(), n);
    store(scores + i, weight);
    total = total + weight;
  }
  *sum = *sum * *rescale + sum_lanes(total);
}

inline void load_queries(const AttentionCall& call, const AttentionTask& task, int group,
                         const AttentionScratch& s) {
  const int d = call.cache->head_dim;
  const VecF scale = set1(1.0f / __builtin_sqrtf(static_cast<float>(d)));
  const int first_row = call.segments[task.segment].first_row + task.row;
  for (int r = 0; r < task.rows; ++r) {
    for (int g = 0; g < group; ++g) {
      const int index = r * group + g;
      const float* source = call.q + (static_cast<std::size_t>(first_row + r) * call.heads +
                                      task.kv_head * group + g) * d;
      float* q = s.q + static_cast<std::size_t>(index) * call.padded;
      float* out = s.out + static_cast<std::size_t>(index) * call.padded;
      for_lanes(d, [&](int i, int n) {
        store(q + i, load_n(source + i, n) * scale);
        store(out + i, zero());
      });
      s.largest[index] = -__builtin_inff();
      s.sum[index] = 0.0f;
    }
  }
}

inline void store_outputs(const AttentionCall& call, const AttentionTask& task, int group,
                          const AttentionScratch& s) {
  const int d = call.cache->head_dim;
  const int first_row = call.segments[task.segment].first_row + task.row;
  for (int r = 0; r < task.rows; ++r) {
    for (int g = 0; g < group; ++g) {
      const int index = r * group + g;
      const float* out = s.out + static_cast<std::size_t>(index) * call.padded;
      float* y = call.y + (static_cast<std::size_t>(first_row + r) * call.heads +
                           task.kv_head * group + g) * d;
      const VecF factor = set1(1.0f / s.sum[index]);
      for_lanes(d, [&](int i, int n) { store_n(y + i, load(out + i) * factor, n); });
    }
  }
}

inline bool outputs_hold_nan(const AttentionScratch& s, int rows, int padded) {
  unsigned nan = 0;
  for (int i = 0; i < rows * padded; i += lanes) nan |= nan_lanes(load(s.out + i));
  return nan != 0;
}

template <class Cache>
void run_attention(const AttentionCall& call, const AttentionTask& task,
                          const AttentionScratch& s) {
  const KvLayer& cache = *call.cache;
  const Segment& segment = call.segments[task.segment];
  const int group = call.heads / cache.kv_heads;
  const int rows = task.rows * group;
  const int first_position = segment.start + task.row;
  const int end = first_position + task.rows;
  load_queries(call, task, group, s);
  KeyRows tiles[2];
  find_keys<Cache>(cache, segment, task.kv_head, 0, end, tiles[0]);
  for (int first = 0; first < end; first += key_tile) {
    KeyRows& keys = tiles[first / key_tile % 2];
    KeyRows& next = tiles[(first / key_tile + 1) % 2];
    next.count = 0;
    if (first + key_tile < end) {
      find_keys<Cache>(cache, segment, task.kv_head, first + key_tile, end, next);
    }
    score_keys<Cache>(call, keys, next, rows, s);
    for (int r = 0; r < rows; ++r) {
      const int valid = first_position + r / group + 1 - first;
      soften_row(s.scores + static_cast<std::size_t>(r) * key_tile, valid, keys.count,
                 s.largest + r, s.sum + r, s.rescale + r);
    }
    add_values<Cache>(call, keys, next, rows, s);
  }
  // A row multiplies the values it may not see by 0: their NaN or infinity would become its own.
  // Alone, a row reads no such values.
  if (task.rows > 1 && outputs_hold_nan(s, rows, call.padded)) {
    for (int r = 0; r < task.rows; ++r) {
      run_attention<Cache>(call, {task.segment, task.row + r, 1, task.kv_head}, s);
    }
    return;
  }
  store_outputs(call, task, group, s);
}

// Latest rows first: they see the most keys, and the short tasks fill the end.
template <class Visit>
inline void for_attention_tasks(const Segment* segments, int count, int kv_heads, int tile_rows,
                                const Visit& visit) {
  for (int s = 0; s < count; ++s) {
    const int tiles = (segments[s].rows + tile_rows - 1) / tile_rows;
    for (int tile = tiles - 1; tile >= 0; --tile) {
      const int row = tile * tile_rows;
      const int rows = segments[s].rows - row < tile_rows ? segments[s].rows - row : tile_rows;
      for (int head = 0; head < kv_heads; ++head) visit(AttentionTask{s, row, rows, head});
    }
  }
}

void attention(Context& context, const float* q, const Segment* segments, int count, int heads,
               const KvLayer& cache, float* y) {
  AttentionCall call;
  call.q = q;
  call.segments = segments;
  call.heads = heads;
  call.cache = &cache;
  call.y = y;
  call.padded = (cache.head_dim + lanes - 1) / lanes * lanes;
  const int group = heads / cache.kv_heads;
  const int tile_rows = query_tile / group > 0 ? query_tile / group : 1;
  int tasks = 0;
  std::int64_t units = 0;
  for_attention_tasks(segments, count, cache.kv_heads, tile_rows, [&](const AttentionTask& task) {
    ++tasks;
    units += static_cast<std::int64_t>(segments[task.segment].start + task.row + task.rows) *
             task.rows * group * cache.head_dim;
  });
  auto* list = static_cast<AttentionTask*>(context.scratch(0, sizeof(AttentionTask) * tasks));
  int filled = 0;
  for_attention_tasks(segments, count, cache.kv_heads, tile_rows,
                      [&](const AttentionTask& task) { list[filled++] = task; });

  const int parts = lane_count(context);
  const int rows = tile_rows * group;
  const std::size_t floats = scratch_floats(rows, call.padded);
  auto* memory = static_cast<float*>(context.scratch(1, sizeof(float) * floats * parts));
  constexpr std::int64_t least_units = 16 * 1024;
  for_tasks(context, tasks, units < least_units ? 1 : parts, [&](int task, int lane) {
    const AttentionScratch s = split_scratch(memory + floats * lane, rows, call.padded);
    if (cache.format == KvFormat::f32) {
      run_attention<FloatCache>(call, list[task], s);
    } else {
      run_attention<BfloatCache>(call, list[task], s);
    }
  });
}

}  // namespace nightshift::kernels::NS_ISA
