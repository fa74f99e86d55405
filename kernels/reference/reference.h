// The naive reference of every operation: one readable meaning for all backends. Knows the table in
// kernels.h; must not know vectors, tiles or packed panels. Contracts are those of the table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace nightshift::kernels::reference {

PackedMatrix pack_f32(const float* w, int n, int k);
PackedMatrix pack_bf16(const std::uint16_t* w, int n, int k);
PackedMatrix pack_int8(const std::int8_t* q, const float* scale, int n, int k,
                       ActivationQuant activation);

void linear(Context& context, const float* x, int m, const PackedMatrix& w, Precision precision,
            float* y);
void grouped_linear(Context& context, const float* x, const std::int32_t* offsets, int experts,
                    const PackedMatrix* w, Precision precision, float* y);
void grouped_gate_up_silu(Context& context, const float* x, const std::int32_t* offsets,
                          int experts, const PackedMatrix* w, Precision precision, float* y);

void embed(Context& context, const std::int32_t* ids, int m, const std::uint16_t* table_bf16,
           const float* table_f32, int d, float* y);
void rms_norm(Context& context, const float* x, int m, int d, const float* weight, float eps,
              float* y);
void add_rms_norm(Context& context, float* residual, const float* x, int m, int d,
                  const float* weight, float eps, float* y);
void add(Context& context, float* y, const float* x, std::size_t count);
void silu(Context& context, const float* x, std::size_t count, float* y);
void mul(Context& context, float* y, const float* x, std::size_t count);

void rope(Context& context, float* x, int m, int heads, int head_dim,
          const std::int32_t* positions, const double* inv_freq);
void kv_append(Context& context, const float* k, const float* v, const Segment* segments,
               int count, const KvLayer& cache);
void qk_norm_rope_append(Context& context, const float* qkv, const Segment* segments, int count,
                         int heads, const float* q_norm, const float* k_norm, float eps,
                         const double* inv_freq, const KvLayer& cache, float* q);
void attention(Context& context, const float* q, const Segment* segments, int count, int heads,
               const KvLayer& cache, float* y);

void router_top_k(Context& context, const float* logits, int m, int experts, int top_k,
                  bool normalise, std::int32_t* ids, float* weights);
void expert_sort(Context& context, const std::int32_t* ids, int m, int top_k, int experts,
                 std::int32_t* offsets, std::int32_t* source);
void expert_gather(Context& context, const float* x, const std::int32_t* source, int m, int top_k,
                   int d, float* y);
void expert_combine(Context& context, const float* x, const std::int32_t* source,
                    const float* weights, int m, int top_k, int d, float* y);

void sample(Context& context, const float* logits, int m, int v, const SampleParams* params,
            const float* uniform, std::int32_t* ids);
void log_likelihood(Context& context, const float* logits, int m, int v,
                    const std::int32_t* targets, double* out);

bool channel_abs_max(Context& context, const float* x, int m, int d, float* channel_max);
// A NaN is counted nowhere.
void abs_histogram(Context& context, const float* x, std::size_t count, float width, int bins,
                   std::uint64_t* counts);

}  // namespace nightshift::kernels::reference
