// Fills the table of one instruction set. Included by its backend.cpp alone, which is compiled with
// baseline flags; must not include simd.h.
#pragma once

#include "kernels/isa/ops_isa.h"
#include "kernels/packing.h"
#include "kernels/reference/reference.h"

namespace nightshift::kernels::NS_ISA {

inline PanelLayout layout_of(WeightFormat format) {
  return product_kernels().layout[static_cast<int>(format)];
}

inline PackedMatrix pack_f32(const float* w, int n, int k) {
  return pack_panels_f32(layout_of(WeightFormat::f32), w, n, k);
}

inline PackedMatrix pack_bf16(const std::uint16_t* w, int n, int k) {
  return pack_panels_bf16(layout_of(WeightFormat::bf16), w, n, k);
}

inline PackedMatrix pack_int8(const std::int8_t* q, const float* scale, int n, int k,
                              ActivationQuant activation) {
  return pack_panels_int8(layout_of(WeightFormat::int8), q, scale, n, k, activation);
}

inline void linear(Context& context, const float* x, int m, const PackedMatrix& w,
                   Precision precision, float* y) {
  const std::int32_t offsets[2] = {0, m};
  run_products(context, product_kernels(), {x, offsets, 1, &w, precision, false, y});
}

inline void grouped_linear(Context& context, const float* x, const std::int32_t* offsets,
                           int experts, const PackedMatrix* w, Precision precision, float* y) {
  run_products(context, product_kernels(), {x, offsets, experts, w, precision, false, y});
}

inline void grouped_gate_up_silu(Context& context, const float* x, const std::int32_t* offsets,
                                 int experts, const PackedMatrix* w, Precision precision,
                                 float* y) {
  run_products(context, product_kernels(), {x, offsets, experts, w, precision, true, y});
}

inline void sample(Context& context, const float* logits, int m, int v,
                   const SampleParams* params, const float* uniform, std::int32_t* ids) {
  sample_rows(context, sample_kernels(), logits, m, v, params, uniform, ids);
}

inline Backend make_backend(const char* name) {
  Backend table{};
  table.name = name;
  table.pack_f32 = pack_f32;
  table.pack_bf16 = pack_bf16;
  table.pack_int8 = pack_int8;
  table.linear = linear;
  table.grouped_linear = grouped_linear;
  table.grouped_gate_up_silu = grouped_gate_up_silu;
  table.embed = embed;
  table.rms_norm = rms_norm;
  table.add_rms_norm = add_rms_norm;
  table.add = add;
  table.silu = silu;
  table.mul = mul;
  table.rope = rope;
  table.kv_append = kv_append;
  table.qk_norm_rope_append = qk_norm_rope_append;
  table.attention = attention;
  table.router_top_k = router_top_k;
  // Counting is the same for all; it has nothing to vectorise.
  table.expert_sort = reference::expert_sort;
  table.expert_gather = expert_gather;
  table.expert_combine = expert_combine;
  table.sample = sample;
  table.log_likelihood = log_likelihood;
  table.channel_abs_max = channel_abs_max;
  table.abs_histogram = abs_histogram;
  return table;
}

}  // namespace nightshift::kernels::NS_ISA
