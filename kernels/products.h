// The driver of all matrix products: prepares inputs, cuts the work into tiles, gives them to the
// threads. Knows shapes and packed panels; must not know an instruction set, which comes in as a
// ProductKernels table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/packing.h"

namespace nightshift::kernels {

// Weight format and what the input is rounded to.
enum class ProductKind : std::uint8_t { f32_f32, f32_bf16, bf16_f32, bf16_bf16, int8_int8 };
inline constexpr int product_kinds = 5;

// One tile: rows x panels, written to y. Each output is one accumulator that runs through k in
// order, so that the result does not depend on how the driver cut the work.
struct ProductTile {
  const char* x = nullptr;        // prepared rows
  std::size_t x_stride = 0;       // bytes
  const float* x_scale = nullptr; // int8 only, one a row
  const char* w = nullptr;        // first panel
  std::size_t panel_bytes = 0;
  const float* w_scale = nullptr;           // int8 only, from the first output on
  const std::int32_t* w_offset = nullptr;   // int8 only
  int rows = 0;
  int panels = 0;
  int n = 0;                      // outputs to write, <= panels * panel width
  int k = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;       // elements
};

struct ProductKernel {
  // Bytes of a prepared input row of k values; 0: the kernel reads the float32 rows themselves.
  std::size_t (*row_bytes)(int k);
  // Rounds or quantises `rows` rows; `scale` is written by int8 kernels only.
  void (*prepare)(const float* x, int rows, int k, ActivationQuant activation, char* out,
                  std::size_t stride, float* scale);
  void (*tile)(const ProductTile& tile);
};

struct ProductKernels {
  PanelLayout layout[3];          // by WeightFormat
  int row_block = 0;              // most rows that a kernel keeps in registers
  ProductKernel kernel[product_kinds];
  // y[i] = silu(gate[i]) * up[i].
  void (*silu_mul)(const float* gate, const float* up, int count, float* y);
};

// Rows offsets[e] .. offsets[e+1] of x meet w[e]. With gate_up, w[e] is [gate; up] of 2n rows and
// y[m, n] = silu(gate) * up.
struct ProductCall {
  const float* x = nullptr;
  const std::int32_t* offsets = nullptr;
  int experts = 0;
  const PackedMatrix* w = nullptr;
  Precision precision = Precision::f32;
  bool gate_up = false;
  float* y = nullptr;
};

void run_products(Context& context, const ProductKernels& kernels, const ProductCall& call);

// The one rule for int8 inputs, for every backend: q = clamp(rint(x * inverse), -127, 127) and
// x ~ q * scale. amax is the row's largest magnitude, NaN when the row holds a NaN; such a row, and
// a dynamic row with an infinity, gets scale NaN. A row below 1e-30 counts as zeros (both 0).
struct RowScale {
  float scale = 0.0f;
  float inverse = 0.0f;
};
RowScale row_scale(float amax, ActivationQuant activation);

}  // namespace nightshift::kernels
