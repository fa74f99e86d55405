// What the files of one instruction set give each other and its backend. NS_ISA names the namespace
// (avx2, avx512), so that no two instruction sets share a symbol. Contracts are those of kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/products.h"
#include "kernels/sampling.h"

#if !defined(NS_ISA)
#error "NS_ISA must name the instruction set before a *_isa.h file is included"
#endif

namespace nightshift::kernels::NS_ISA {

// The tables that the baseline drivers call.
const ProductKernels& product_kernels();
const SampleKernels& sample_kernels();

void silu_mul(const float* gate, const float* up, int count, float* y);

void embed(Context& context, const std::int32_t* ids, int m, const std::uint16_t* table_bf16,
           const float* table_f32, int d, float* y);
void rms_norm(Context& context, const float* x, int m, int d, const float* weight, float eps,
              float* y);
void add_rms_norm(Context& context, float* residual, const float* x, int m, int d,
                  const float* weight, float eps, float* y);
void add(Context& context, float* y, const float* x, std::size_t count);
void silu(Context& context, const float* x, std::size_t count, float* y);
void mul(Context& context, float* y, const float* x, std::size_t count);
bool channel_abs_max(Context& context, const float* x, int m, int d, float* channel_max);
void abs_histogram(Context& context, const float* x, std::size_t count, float width, int bins,
                   std::uint64_t* counts);

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
void expert_gather(Context& context, const float* x, const std::int32_t* source, int m, int top_k,
                   int d, float* y);
void expert_combine(Context& context, const float* x, const std::int32_t* source,
                    const float* weights, int m, int top_k, int d, float* y);

void log_likelihood(Context& context, const float* logits, int m, int v,
                    const std::int32_t* targets, double* out);

}  // namespace nightshift::kernels::NS_ISA
