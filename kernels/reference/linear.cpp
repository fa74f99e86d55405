#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/memory.h"
#include "kernels/products.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace nightshift::kernels::reference {
namespace {

constexpr int row_slot = 0;
constexpr int quantised_slot = 1;
constexpr int gate_up_slot = 2;

// Row-major, as given; int8: the scales first, then the values.
PackedMatrix keep(WeightFormat format, const void* values, std::size_t value_bytes,
                  const float* scale, int n, int k) {
  const std::size_t count = static_cast<std::size_t>(n) * k;
  const std::size_t scale_bytes = scale == nullptr ? 0 : sizeof(float) * n;
  PackedMatrix matrix;
  matrix.format = format;
  matrix.n = n;
  matrix.k = k;
  matrix.bytes = scale_bytes + count * value_bytes;
  std::shared_ptr<void> block = make_block(matrix.bytes);
  char* out = static_cast<char*>(block.get());
  if (scale_bytes != 0) std::memcpy(out, scale, scale_bytes);
  if (count != 0) std::memcpy(out + scale_bytes, values, count * value_bytes);
  matrix.data = std::move(block);
  return matrix;
}

float dot_f32(const float* x, const float* w, int k) {
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += x[i] * w[i];
  return sum;
}

float dot_bf16(const float* x, const std::uint16_t* w, int k) {
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += x[i] * widen_bf16(w[i]);
  return sum;
}

// The row's scale; q[k] are its quantised values.
float quantise_row(const float* x, int k, ActivationQuant activation, std::int8_t* q) {
  float amax = 0.0f;
  for (int i = 0; i < k; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (!(magnitude <= amax)) amax = magnitude;
    if (std::isnan(amax)) break;
  }
  const RowScale scale = row_scale(amax, activation);
  for (int i = 0; i < k; ++i) {
    if (std::isnan(scale.scale)) {
      q[i] = 0;
      continue;
    }
    float value = std::nearbyint(x[i] * scale.inverse);
    if (value > 127.0f) value = 127.0f;
    if (value < -127.0f) value = -127.0f;
    q[i] = static_cast<std::int8_t>(value);
  }
  return scale.scale;
}

void row_int8(Context& context, const float* x, const PackedMatrix& w, float* y) {
  auto* q = static_cast<std::int8_t*>(context.scratch(quantised_slot, w.k));
  const float x_scale = quantise_row(x, w.k, w.activation, q);
  const auto* w_scale = static_cast<const float*>(w.data.get());
  const auto* values = reinterpret_cast<const std::int8_t*>(w_scale + w.n);
  for (int j = 0; j < w.n; ++j) {
    const std::int8_t* row = values + static_cast<std::size_t>(j) * w.k;
    std::int32_t sum = 0;
    for (int i = 0; i < w.k; ++i) sum += static_cast<std::int32_t>(q[i]) * row[i];
    y[j] = static_cast<float>(sum) * (x_scale * w_scale[j]);
  }
}

void row_product(Context& context, const float* x, const PackedMatrix& w, Precision precision,
                 float* y) {
  if (w.format == WeightFormat::int8) {
    row_int8(context, x, w, y);
    return;
  }
  auto* input = static_cast<float*>(context.scratch(row_slot, sizeof(float) * w.k));
  for (int i = 0; i < w.k; ++i) {
    input[i] = precision == Precision::bf16 ? round_bf16(x[i]) : x[i];
  }
  for (int j = 0; j < w.n; ++j) {
    const std::size_t row = static_cast<std::size_t>(j) * w.k;
    y[j] = w.format == WeightFormat::f32
               ? dot_f32(input, static_cast<const float*>(w.data.get()) + row, w.k)
               : dot_bf16(input, static_cast<const std::uint16_t*>(w.data.get()) + row, w.k);
  }
}

}  // namespace

PackedMatrix pack_f32(const float* w, int n, int k) {
  return keep(WeightFormat::f32, w, sizeof(float), nullptr, n, k);
}

PackedMatrix pack_bf16(const std::uint16_t* w, int n, int k) {
  return keep(WeightFormat::bf16, w, sizeof(std::uint16_t), nullptr, n, k);
}

PackedMatrix pack_int8(const std::int8_t* q, const float* scale, int n, int k,
                       ActivationQuant activation) {
  PackedMatrix matrix = keep(WeightFormat::int8, q, sizeof(std::int8_t), scale, n, k);
  matrix.activation = activation;
  return matrix;
}

void linear(Context& context, const float* x, int m, const PackedMatrix& w, Precision precision,
            float* y) {
  for (int row = 0; row < m; ++row) {
    row_product(context, x + static_cast<std::size_t>(row) * w.k, w, precision,
                y + static_cast<std::size_t>(row) * w.n);
  }
}

void grouped_linear(Context& context, const float* x, const std::int32_t* offsets, int experts,
                    const PackedMatrix* w, Precision precision, float* y) {
  for (int expert = 0; expert < experts; ++expert) {
    const PackedMatrix& matrix = w[expert];
    const std::size_t first = static_cast<std::size_t>(offsets[expert]);
    linear(context, x + first * matrix.k, offsets[expert + 1] - offsets[expert], matrix, precision,
           y + first * matrix.n);
  }
}

void grouped_gate_up_silu(Context& context, const float* x, const std::int32_t* offsets,
                          int experts, const PackedMatrix* w, Precision precision, float* y) {
  for (int expert = 0; expert < experts; ++expert) {
    const PackedMatrix& matrix = w[expert];
    const int n = matrix.n / 2;
    auto* both = static_cast<float*>(context.scratch(gate_up_slot, sizeof(float) * matrix.n));
    for (std::int32_t row = offsets[expert]; row < offsets[expert + 1]; ++row) {
      row_product(context, x + static_cast<std::size_t>(row) * matrix.k, matrix, precision, both);
      for (int j = 0; j < n; ++j) {
        y[static_cast<std::size_t>(row) * n + j] = silu_of(both[j]) * both[n + j];
      }
    }
  }
}

}  // namespace nightshift::kernels::reference
