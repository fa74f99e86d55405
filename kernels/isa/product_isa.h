// The register-blocked product over panels, one source for every instruction set and number format.
// Include simd.h and define NS_ISA first. A Kind supplies:
//   Acc                      accumulator vector
//   panel, step_bytes        outputs a panel (one vector); bytes of one step of one panel
//   group, parts, x_bytes    inputs a step; multiplications a step; bytes of x a part
//   whole_steps              whether x is padded to whole steps (else part 0 alone may be left)
//   Weight weight(p, part)   weights of a step
//   Input input(p)           one input, in every lane
//   Acc mac(acc, input, weight)
//   Acc start(tile, column), VecF finish(tile, acc, row, column)
#pragma once

#include "kernels/isa/ops_isa.h"

namespace nightshift::kernels::NS_ISA {

// Where a block reads and writes.
struct BlockArgs {
  const ProductTile* tile = nullptr;
  int row = 0;
  int panel = 0;
};

// MR rows times NV panels, held in registers while k runs through in order.
template <class Kind, int MR, int NV>
void product_block(const BlockArgs& args) {
  const ProductTile& tile = *args.tile;
  const std::size_t x_stride = tile.x_stride;
  const std::size_t panel_bytes = tile.panel_bytes;
  const char* x = tile.x + x_stride * args.row;
  const char* w = tile.w + panel_bytes * args.panel;
  typename Kind::Acc acc[MR][NV];
#pragma GCC unroll 16
  for (int v = 0; v < NV; ++v) {
    const typename Kind::Acc first = Kind::start(tile, (args.panel + v) * Kind::panel);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) acc[r][v] = first;
  }
  const auto part_of_step = [&](const char* xs, const char* ws, int part) __attribute__((
                                always_inline)) {
    typename Kind::Weight weights[NV];
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) weights[v] = Kind::weight(ws + panel_bytes * v, part);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const typename Kind::Input input = Kind::input(xs + x_stride * r + Kind::x_bytes * part);
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) acc[r][v] = Kind::mac(acc[r][v], input, weights[v]);
    }
  };
  const int steps =
      Kind::whole_steps ? (tile.k + Kind::group - 1) / Kind::group : tile.k / Kind::group;
  for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 4
    for (int part = 0; part < Kind::parts; ++part) part_of_step(x, w, part);
    x += Kind::x_bytes * Kind::parts;
    w += Kind::step_bytes;
  }
  if (!Kind::whole_steps && tile.k % Kind::group != 0) part_of_step(x, w, 0);
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    float* y = tile.y + tile.y_stride * (args.row + r);
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      const int column = (args.panel + v) * Kind::panel;
      const VecF value = Kind::finish(tile, acc[r][v], args.row + r, column);
      if (tile.n - column >= Kind::panel) {
        store(y + column, value);
      } else {
        store_n(y + column, value, tile.n - column);
      }
    }
  }
}

template <class Kind, int MR, int NV>
void product_rows(const BlockArgs& args, int rows) {
  if (rows == MR) {
    product_block<Kind, MR, NV>(args);
  } else if constexpr (MR > 1) {
    product_rows<Kind, MR - 1, NV>(args, rows);
  }
}

// All rows of a tile against NV panels, in blocks of nearly equal height.
template <class Kind, int NV>
void product_panels(const ProductTile& tile, int panel) {
  constexpr int most = Kind::registers / NV < Kind::row_block ? Kind::registers / NV
                                                              : Kind::row_block;
  const int blocks = (tile.rows + most - 1) / most;
  int row = 0;
  for (int i = 0; i < blocks; ++i) {
    const int rows = (tile.rows - row) / (blocks - i);
    product_rows<Kind, most, NV>({&tile, row, panel}, rows);
    row += rows;
  }
}

// Few rows take many panels at once: one accumulator chain alone would wait for its own latency.
template <class Kind>
void product_tile(const ProductTile& tile) {
  constexpr int registers = Kind::registers;
  int panel = 0;
  if (tile.rows <= registers / 8) {
    for (; panel + 8 <= tile.panels; panel += 8) product_panels<Kind, 8>(tile, panel);
  }
  if (tile.rows <= registers / 4) {
    for (; panel + 4 <= tile.panels; panel += 4) product_panels<Kind, 4>(tile, panel);
  }
  for (; panel + 2 <= tile.panels; panel += 2) product_panels<Kind, 2>(tile, panel);
  if (panel < tile.panels) product_panels<Kind, 1>(tile, panel);
}

// ---- Kinds that every instruction set has: float32 products of float32 or bfloat16 weights ------

struct FloatKind {
  using Acc = VecF;
  using Weight = VecF;
  using Input = VecF;
  static constexpr int panel = lanes;
  static constexpr int step_bytes = lanes * 4;
  static constexpr int x_bytes = 4;
  static constexpr bool whole_steps = false;
  // Accumulators that leave room for weights and an input; rows that use them with two panels.
  static constexpr int registers = lanes == 16 ? 24 : 12;
  static constexpr int row_block = registers / 2;
  static Input input(const char* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof(value));
    return set1(value);
  }
  static Acc mac(Acc acc, Input input, Weight weight) { return fma(input, weight, acc); }
  static Acc start(const ProductTile&, int) { return zero(); }
  static VecF finish(const ProductTile&, Acc acc, int, int) { return acc; }
};

struct FloatWeights : FloatKind {
  static constexpr int group = 1;
  static constexpr int parts = 1;
  static Weight weight(const char* p, int) { return load(reinterpret_cast<const float*>(p)); }
};

struct BfloatWeights : FloatKind {
  static constexpr int group = 2;
  static constexpr int parts = 2;
  static Weight weight(const char* p, int part) {
    const VecF pairs = load(reinterpret_cast<const float*>(p));
    return part == 0 ? pair_low(pairs) : pair_high(pairs);
  }
};

inline std::size_t no_row_bytes(int) { return 0; }
inline std::size_t float_row_bytes(int k) {
  return (static_cast<std::size_t>(k) * sizeof(float) + 63) / 64 * 64;
}

// Rounded to bfloat16, kept as float32.
inline void prepare_rounded(const float* x, int rows, int k, ActivationQuant, char* out,
                            std::size_t stride, float*) {
  for (int row = 0; row < rows; ++row) {
    const float* source = x + static_cast<std::size_t>(row) * k;
    float* target = reinterpret_cast<float*>(out + stride * row);
    int i = 0;
    for (; i + lanes <= k; i += lanes) store(target + i, round_bf16(load(source + i)));
    if (i < k) store_n(target + i, round_bf16(load_n(source + i, k - i)), k - i);
  }
}

// Largest magnitude of a row, NaN when it holds one.
inline float row_amax(const float* x, int k) {
  VecF top = zero();
  unsigned nan = 0;
  int i = 0;
  for (; i + lanes <= k; i += lanes) {
    const VecF value = load(x + i);
    nan |= nan_lanes(value);
    top = max_of(abs_of(value), top);
  }
  if (i < k) {
    const VecF value = load_n(x + i, k - i);
    nan |= nan_lanes(value);
    top = max_of(abs_of(value), top);
  }
  return nan != 0 ? __builtin_nanf("") : max_lanes(top);
}

// Whole numbers in [-127, 127]; a NaN gives a bound.
inline VecF quantised(VecF x, VecF inverse) {
  return round_even(max_of(min_of(x * inverse, set1(127.0f)), set1(-127.0f)));
}

}  // namespace nightshift::kernels::NS_ISA
