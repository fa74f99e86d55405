#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"

namespace nightshift::kernels::reference {
namespace {

constexpr int probability_slot = 0;
constexpr int inverse_slot = 1;

// The largest probability not yet taken; with NaNs, the first not yet taken.
int take_largest(float* probability, int experts) {
  constexpr float taken = -1.0f;
  int best = -1;
  for (int e = 0; e < experts; ++e) {
    if (probability[e] == taken) continue;
    if (best < 0 || probability[e] > probability[best]) best = e;
  }
  return best;
}

}  // namespace

void router_top_k(Context& context, const float* logits, int m, int experts, int top_k,
                  bool normalise, std::int32_t* ids, float* weights) {
  auto* probability =
      static_cast<float*>(context.scratch(probability_slot, sizeof(float) * experts));
  for (int row = 0; row < m; ++row) {
    const float* x = logits + static_cast<std::size_t>(row) * experts;
    float largest = -std::numeric_limits<float>::infinity();
    for (int e = 0; e < experts; ++e) largest = x[e] > largest ? x[e] : largest;
    double total = 0.0;
    for (int e = 0; e < experts; ++e) total += std::exp(static_cast<double>(x[e]) - largest);
    for (int e = 0; e < experts; ++e) {
      probability[e] =
          static_cast<float>(std::exp(static_cast<double>(x[e]) - largest) / total);
    }
    double kept = 0.0;
    for (int c = 0; c < top_k; ++c) {
      const int best = take_largest(probability, experts);
      const std::size_t slot = static_cast<std::size_t>(row) * top_k + c;
      ids[slot] = best;
      weights[slot] = probability[best];
      probability[best] = -1.0f;
      kept += weights[slot];
    }
    for (int c = 0; normalise && c < top_k; ++c) {
      const std::size_t slot = static_cast<std::size_t>(row) * top_k + c;
      weights[slot] = static_cast<float>(weights[slot] / kept);
    }
  }
}

void expert_sort(Context&, const std::int32_t* ids, int m, int top_k, int experts,
                 std::int32_t* offsets, std::int32_t* source) {
  const int pairs = m * top_k;
  for (int e = 0; e <= experts; ++e) offsets[e] = 0;
  for (int i = 0; i < pairs; ++i) ++offsets[ids[i] + 1];
  for (int e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as expert e's cursor, which ends where expert e + 1 began.
  for (int i = 0; i < pairs; ++i) source[offsets[ids[i]]++] = i;
  for (int e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

void expert_gather(Context&, const float* x, const std::int32_t* source, int m, int top_k, int d,
                   float* y) {
  for (int i = 0; i < m * top_k; ++i) {
    for (int j = 0; j < d; ++j) {
      y[static_cast<std::size_t>(i) * d + j] =
          x[static_cast<std::size_t>(source[i] / top_k) * d + j];
    }
  }
}

void expert_combine(Context& context, const float* x, const std::int32_t* source,
                    const float* weights, int m, int top_k, int d, float* y) {
  const std::size_t pairs = static_cast<std::size_t>(m) * top_k;
  auto* slot_of = static_cast<std::int32_t*>(
      context.scratch(inverse_slot, sizeof(std::int32_t) * (pairs + 1)));
  for (std::size_t i = 0; i < pairs; ++i) slot_of[source[i]] = static_cast<std::int32_t>(i);
  for (int row = 0; row < m; ++row) {
    for (int j = 0; j < d; ++j) {
      float sum = 0.0f;
      for (int c = 0; c < top_k; ++c) {
        const std::size_t pair = static_cast<std::size_t>(row) * top_k + c;
        sum += weights[pair] * x[static_cast<std::size_t>(slot_of[pair]) * d + j];
      }
      y[static_cast<std::size_t>(row) * d + j] = sum;
    }
  }
}

}  // namespace nightshift::kernels::reference
