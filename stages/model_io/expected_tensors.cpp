#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "stages/model_io/model_config.h"

namespace nightshift {
namespace {

void add_attention(const ModelConfig& config, const std::string& layer,
                   std::vector<ExpectedTensor>& out) {
  const std::int64_t hidden = config.hidden_size;
  const std::string prefix = layer + "self_attn.";
  out.push_back({layer + "input_layernorm.weight", {hidden}});
  out.push_back({prefix + "q_proj.weight", {config.q_size(), hidden}});
  out.push_back({prefix + "k_proj.weight", {config.kv_size(), hidden}});
  out.push_back({prefix + "v_proj.weight", {config.kv_size(), hidden}});
  out.push_back({prefix + "q_norm.weight", {config.head_dim}});
  out.push_back({prefix + "k_norm.weight", {config.head_dim}});
  out.push_back({prefix + "o_proj.weight", {hidden, config.q_size()}});
  out.push_back({layer + "post_attention_layernorm.weight", {hidden}});
}

void add_gated_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width,
                   std::vector<ExpectedTensor>& out) {
  out.push_back({prefix + "gate_proj.weight", {width, hidden}});
  out.push_back({prefix + "up_proj.weight", {width, hidden}});
  out.push_back({prefix + "down_proj.weight", {hidden, width}});
}

// Files that other programs wrote hold these too, and nobody needs them.
bool is_harmless(const ModelConfig& config, const TensorView& view) {
  static constexpr std::string_view table = ".rotary_emb.inv_freq";
  const std::string_view name = view.name;
  if (name.size() >= table.size() && name.substr(name.size() - table.size()) == table) return true;
  return config.tie_word_embeddings && name == "lm_head.weight" &&
         view.shape == TensorShape{config.vocab_size, config.hidden_size};
}

bool is_loadable(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> out;
  out.push_back({"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add_attention(config, prefix, out);
    if (!config.is_sparse_layer(layer)) {
      add_gated_mlp(prefix + "mlp.", config.hidden_size, config.intermediate_size, out);
      continue;
    }
    out.push_back({prefix + "mlp.gate.weight", {config.experts, config.hidden_size}});
    for (std::int64_t expert = 0; expert < config.experts; ++expert) {
      add_gated_mlp(fmt::format("{}mlp.experts.{}.", prefix, expert), config.hidden_size,
                    config.moe_intermediate_size, out);
    }
  }
  out.push_back({"model.norm.weight", {config.hidden_size}});
  if (!config.tie_word_embeddings) {
    out.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  return out;
}

Status check_tensors(const ModelConfig& config, const WeightFiles& weights) {
  const auto expected = expected_tensors(config);
  std::unordered_set<std::string_view> names;
  std::size_t missing = 0;
  const ExpectedTensor* first_missing = nullptr;
  for (const auto& tensor : expected) {
    names.insert(tensor.name);
    const TensorView* view = weights.find(tensor.name);
    if (view == nullptr) {
      if (missing++ == 0) first_missing = &tensor;
      continue;
    }
    if (view->shape != tensor.shape) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("tensor \"{}\" has shape {}, but config.json makes it {}",
                               tensor.name, to_string(view->shape), to_string(tensor.shape)),
                   weights.folder(), "config.json and the weights are of different models"};
    }
    if (!is_loadable(view->dtype)) {
      return Error{ErrorCode::unsupported,
                   fmt::format("tensor \"{}\" is {}; models are loaded from BF16, F16 or F32",
                               tensor.name, to_string(view->dtype)),
                   weights.folder(), "start from the 16-bit model"};
    }
  }
  if (missing > 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tensor \"{}\" {} is missing ({} of {} are)", first_missing->name,
                             to_string(first_missing->shape), missing, expected.size()),
                 weights.folder(), ""};
  }
  std::size_t extra = 0;
  std::string first_extra;
  for (const TensorView* view : weights.tensors()) {
    if (names.count(view->name) != 0 || is_harmless(config, *view)) continue;
    if (extra++ == 0) first_extra = view->name;
  }
  if (extra > 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tensor \"{}\" has no place in a {} model ({} have none)", first_extra,
                             to_string(config.family), extra),
                 weights.folder(), "config.json and the weights are of different models"};
  }
  return {};
}

}  // namespace nightshift
