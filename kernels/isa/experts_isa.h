// Routing and moving rows to experts and back. Include simd.h and define NS_ISA first.
#pragma once

#include "kernels/isa/lanes_isa.h"
#include "kernels/isa/math_isa.h"
#include "kernels/isa/ops_isa.h"
#include "kernels/parallel.h"

namespace nightshift::kernels::NS_ISA {

// p[experts] = exp(x - largest); returns the sum. p has room for whole vectors.
inline float router_exp(const float* x, int experts, float* p) {
  const float lowest = -__builtin_inff();
  VecF top = set1(lowest);
  for_lanes(experts, [&](int i, int n) {
    top = max_of(first_or(load_n(x + i, n), set1(lowest), n), top);
  });
  const VecF largest = set1(max_lanes(top));
  VecF sum = zero();
  for_lanes(experts, [&](int i, int n) {
    const VecF e = exp_of(load_n(x + i, n) - largest);
    store(p + i, e);
    sum = sum + first_or(e, zero(), n);
  });
  return sum_lanes(sum);
}

// Picks by probability, ties by id; with NaNs, the first not yet taken.
inline void pick_experts(float* p, int experts, float total, int top_k, bool normalise,
                         std::int32_t* ids, float* weights) {
  constexpr float taken = -1.0f;
  float kept = 0.0f;
  for (int e = 0; e < experts; ++e) p[e] /= total;
  for (int c = 0; c < top_k; ++c) {
    int best = -1;
    for (int e = 0; e < experts; ++e) {
      if (p[e] != taken && (best < 0 || p[e] > p[best])) best = e;
    }
    ids[c] = best;
    weights[c] = p[best];
    kept += p[best];
    p[best] = taken;
  }
  for (int c = 0; normalise && c < top_k; ++c) weights[c] /= kept;
}

void router_top_k(Context& context, const float* logits, int m, int experts, int top_k,
                  bool normalise, std::int32_t* ids, float* weights) {
  const int padded = (experts + lanes - 1) / lanes * lanes;
  const int parts = lane_count(context);
  auto* scratch = static_cast<float*>(
      context.scratch(0, sizeof(float) * static_cast<std::size_t>(padded) * parts));
  constexpr int least_rows = 64;
  const int tasks = m >= parts * least_rows ? parts : 1;
  for_tasks(context, tasks, tasks, [&](int task, int lane) {
    float* p = scratch + static_cast<std::size_t>(lane) * padded;
    const int end = static_cast<int>(static_cast<std::int64_t>(m) * (task + 1) / tasks);
    for (int row = static_cast<int>(static_cast<std::int64_t>(m) * task / tasks); row < end;
         ++row) {
      const std::size_t slot = static_cast<std::size_t>(row) * top_k;
      const float total =
          router_exp(logits + static_cast<std::size_t>(row) * experts, experts, p);
      pick_experts(p, experts, total, top_k, normalise, ids + slot, weights + slot);
    }
  });
}

void expert_gather(Context& context, const float* x, const std::int32_t* source, int m, int top_k,
                   int d, float* y) {
  for_range(context, m * top_k, rows_grain(d), [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const float* from = x + static_cast<std::size_t>(source[i] / top_k) * d;
      float* to = y + static_cast<std::size_t>(i) * d;
      __builtin_memcpy(to, from, sizeof(float) * d);
    }
  });
}

void expert_combine(Context& context, const float* x, const std::int32_t* source,
                    const float* weights, int m, int top_k, int d, float* y) {
  const int pairs = m * top_k;
  auto* slot_of =
      static_cast<std::int32_t*>(context.scratch(0, sizeof(std::int32_t) * (pairs + 1)));
  for (int i = 0; i < pairs; ++i) slot_of[source[i]] = i;
  for_range(context, m, rows_grain(d * top_k), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const std::int32_t* slots = slot_of + static_cast<std::size_t>(row) * top_k;
      const float* weight = weights + static_cast<std::size_t>(row) * top_k;
      float* out = y + static_cast<std::size_t>(row) * d;
      for_lanes(d, [&](int i, int n) {
        VecF sum = zero();
        for (int c = 0; c < top_k; ++c) {
          sum = fma(set1(weight[c]), load_n(x + static_cast<std::size_t>(slots[c]) * d + i, n),
                    sum);
        }
        store_n(out + i, sum, n);
      });
    }
  });
}

}  // namespace nightshift::kernels::NS_ISA
