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
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

constexpr int key_tile = 64;
// Query rows times query heads of a group that share one tile of keys.
constexpr int query_tile = 48;
constexpr int attention_registers = lanes == 16 ? 24 : 12;

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

// ---- How keys and values are read ----------------------------------------------------------------

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

// ---- Small product: c[rows, n] = start + a[rows, k] * b[k, n] ------------------------------------

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
  constexpr int widest = attention_registers / 2;
  constexpr int most = attention_registers / NV < widest ? attention_registers / NV : widest;
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
  if (rows <= attention_registers / 4) {
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

// ---- One task ------------------------------------------------------------------------------------

// Asks for the memory of positions [first, first + count), so that it arrives while the other half of
// the tile is computed: blocks are too short for the hardware to foresee the next one.
template <class Cache>
inline void prefetch_rows(const KvLayer& cache, const void* memory, const Segment& segment,
                          int head, int first, int count) {
  constexpr int line = 64;
  int t = 0;
  while (t < count) {
    const int position = first + t;
    const int left = cache.block_tokens - position % cache.block_tokens;
    const int run = left < count - t ? left : count - t;
    const char* p = reinterpret_cast<const char*>(
        static_cast<const typename Cache::Element*>(memory) +
        cache_row(cache, segment, position, head));
    const char* end =
        p + static_cast<std::size_t>(run) * cache.head_dim * sizeof(typename Cache::Element);
    for (; p < end; p += line) _mm_prefetch(p, _MM_HINT_T0);
    t += run;
  }
}

// Keys [first, first + count) as columns of scratch.keys. The columns that fill up the last vector
// repeat its last key; their scores are masked.
template <class Cache, bool Widen>
inline void load_keys(const KvLayer& cache, const Segment& segment, int head, int first, int count,
                      float* keys) {
  const std::size_t row_bytes = cache.head_dim * sizeof(typename Cache::Element);
  const char* rows[key_tile];
  int t = 0;
  while (t < count) {
    const int position = first + t;
    const int left = cache.block_tokens - position % cache.block_tokens;
    const int run = left < count - t ? left : count - t;
    const char* row =
        reinterpret_cast<const char*>(static_cast<const typename Cache::Element*>(cache.k) +
                                      cache_row(cache, segment, position, head));
    for (int i = 0; i < run; ++i) rows[t + i] = row + row_bytes * i;
    t += run;
  }
  for (; t % lanes != 0; ++t) rows[t] = rows[count - 1];
  for (int i = 0; i < t; i += lanes) {
    transpose_words<Widen>(rows + i, static_cast<int>(row_bytes / sizeof(float)), keys + i);
  }
}

// out = out * rescale + scores * values, block of the cache by block.
template <class Cache>
inline void add_values(const AttentionCall& call, const Segment& segment, int head, int first,
                       int count, int rows, const AttentionScratch& s) {
  const KvLayer& cache = *call.cache;
  SmallProduct p;
  p.a_stride = key_tile;
  p.b_stride = cache.head_dim;
  p.c = s.out;
  p.c_stride = call.padded;
  p.rescale = s.rescale;
  p.accumulate = true;
  int t = 0;
  while (t < count) {
    const int position = first + t;
    const int left = cache.block_tokens - position % cache.block_tokens;
    p.k = left < count - t ? left : count - t;
    p.a = s.scores + t;
    p.b = static_cast<const typename Cache::Element*>(cache.v) +
          cache_row(cache, segment, position, head);
    small_product<Cache>(p, rows, cache.head_dim);
    p.rescale = nullptr;
    t += p.k;
  }
}

// Turns a row of scores into weights relative to the new running maximum; keys past `valid` weigh 0.
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
  const int keys = first_position + task.rows;
  const bool few = rows <= attention_registers / 2;
  load_queries(call, task, group, s);
  for (int first = 0; first < keys; first += key_tile) {
    const int count = keys - first < key_tile ? keys - first : key_tile;
    prefetch_rows<Cache>(cache, cache.v, segment, task.kv_head, first, count);
    if (few) {
      load_keys<Cache, false>(cache, segment, task.kv_head, first, count, s.keys);
    } else {
      load_keys<Cache, Cache::widen>(cache, segment, task.kv_head, first, count, s.keys);
    }
    if (keys > first + count) {
      const int more = keys - first - count < key_tile ? keys - first - count : key_tile;
      prefetch_rows<Cache>(cache, cache.k, segment, task.kv_head, first + count, more);
    }
    SmallProduct p;
    p.a = s.q;
    p.a_stride = call.padded;
    p.b = s.keys;
    p.b_stride = key_tile;
    p.k = cache.head_dim;
    p.c = s.scores;
    p.c_stride = key_tile;
    const int columns = (count + lanes - 1) / lanes * lanes;
    if (few) {
      small_product<typename Cache::FewKeys>(p, rows, columns);
    } else {
      small_product<FloatRows>(p, rows, columns);
    }
    for (int r = 0; r < rows; ++r) {
      const int valid = first_position + r / group + 1 - first;
      soften_row(s.scores + static_cast<std::size_t>(r) * key_tile, valid, count, s.largest + r,
                 s.sum + r, s.rescale + r);
    }
    add_values<Cache>(call, segment, task.kv_head, first, count, rows, s);
  }
  // A row multiplies the values it may not see by 0, which turns their NaN or infinity into its own.
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
