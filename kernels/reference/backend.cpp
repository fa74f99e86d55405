#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace nightshift::kernels {

const Backend& scalar_backend() {
  static const Backend backend = [] {
    Backend table{};
    table.name = "scalar";
    table.pack_f32 = reference::pack_f32;
    table.pack_bf16 = reference::pack_bf16;
    table.pack_int8 = reference::pack_int8;
    table.linear = reference::linear;
    table.grouped_linear = reference::grouped_linear;
    table.grouped_gate_up_silu = reference::grouped_gate_up_silu;
    table.embed = reference::embed;
    table.rms_norm = reference::rms_norm;
    table.add_rms_norm = reference::add_rms_norm;
    table.add = reference::add;
    table.silu = reference::silu;
    table.mul = reference::mul;
    table.rope = reference::rope;
    table.kv_append = reference::kv_append;
    table.qk_norm_rope_append = reference::qk_norm_rope_append;
    table.attention = reference::attention;
    table.router_top_k = reference::router_top_k;
    table.expert_sort = reference::expert_sort;
    table.expert_gather = reference::expert_gather;
    table.expert_combine = reference::expert_combine;
    table.sample = reference::sample;
    table.log_likelihood = reference::log_likelihood;
    table.channel_abs_max = reference::channel_abs_max;
    table.abs_histogram = reference::abs_histogram;
    return table;
  }();
  return backend;
}

}  // namespace nightshift::kernels
