#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace nightshift::kernels::reference {

void embed(Context&, const std::int32_t* ids, int m, const std::uint16_t* table_bf16,
           const float* table_f32, int d, float* y) {
  for (int row = 0; row < m; ++row) {
    const std::size_t first = static_cast<std::size_t>(ids[row]) * d;
    for (int i = 0; i < d; ++i) {
      y[static_cast<std::size_t>(row) * d + i] =
          table_f32 != nullptr ? table_f32[first + i] : widen_bf16(table_bf16[first + i]);
    }
  }
}

void rms_norm(Context&, const float* x, int m, int d, const float* weight, float eps, float* y) {
  for (int row = 0; row < m; ++row) {
    const std::size_t first = static_cast<std::size_t>(row) * d;
    double sum = 0.0;
    for (int i = 0; i < d; ++i) sum += static_cast<double>(x[first + i]) * x[first + i];
    const auto factor = static_cast<float>(1.0 / std::sqrt(sum / d + eps));
    for (int i = 0; i < d; ++i) y[first + i] = x[first + i] * factor * weight[i];
  }
}

void add_rms_norm(Context& context, float* residual, const float* x, int m, int d,
                  const float* weight, float eps, float* y) {
  add(context, residual, x, static_cast<std::size_t>(m) * d);
  rms_norm(context, residual, m, d, weight, eps, y);
}

void add(Context&, float* y, const float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
}

void silu(Context&, const float* x, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = silu_of(x[i]);
}

void mul(Context&, float* y, const float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] *= x[i];
}

bool channel_abs_max(Context&, const float* x, int m, int d, float* channel_max) {
  bool finite = true;
  for (int row = 0; row < m; ++row) {
    for (int i = 0; i < d; ++i) {
      const float magnitude = std::fabs(x[static_cast<std::size_t>(row) * d + i]);
      finite = finite && std::isfinite(magnitude);
      if (magnitude > channel_max[i]) channel_max[i] = magnitude;
    }
  }
  return finite;
}

void abs_histogram(Context&, const float* x, std::size_t count, float width, int bins,
                   std::uint64_t* counts) {
  for (std::size_t i = 0; i < count; ++i) {
    const float bin = std::fabs(x[i]) / width;
    if (std::isnan(bin)) continue;
    const int last = bins - 1;
    ++counts[bin >= static_cast<float>(last) ? last : static_cast<int>(bin)];
  }
}

}  // namespace nightshift::kernels::reference
