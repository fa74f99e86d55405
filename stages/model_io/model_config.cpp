#include "stages/model_io/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "schema/json.h"
#include "stages/model_io/files.h"

namespace nightshift {
namespace {

constexpr std::uint64_t config_bytes_max = 16u << 20;
// Far above any model, and small enough that a product of three sizes fits in 64 bits.
constexpr std::int64_t size_max = std::int64_t{1} << 20;
constexpr std::int64_t vocab_max = std::int64_t{1} << 24;
constexpr std::int64_t positions_max = std::int64_t{1} << 30;
constexpr std::int64_t layers_max = 10'000;
constexpr std::int64_t experts_total_max = 1'000'000;

struct FamilyName {
  ModelFamily family;
  const char* model_type;
  bool supported;
};

constexpr std::array<FamilyName, 7> families = {{
    {ModelFamily::llama, "llama", false},
    {ModelFamily::qwen2, "qwen2", false},
    {ModelFamily::qwen2_moe, "qwen2_moe", false},
    {ModelFamily::qwen3, "qwen3", true},
    {ModelFamily::qwen3_moe, "qwen3_moe", true},
    {ModelFamily::mixtral, "mixtral", false},
    {ModelFamily::olmoe, "olmoe", false},
}};

const FamilyName& facts_of(ModelFamily family) {
  return *std::find_if(families.begin(), families.end(),
                       [family](const FamilyName& entry) { return entry.family == family; });
}

std::string supported_families() {
  std::string names;
  for (const auto& entry : families) {
    if (entry.supported) names += (names.empty() ? "" : ", ") + std::string(entry.model_type);
  }
  return names;
}

Error refuse(const std::string& where, std::string what) {
  return Error{ErrorCode::unsupported, std::move(what), where, ""};
}

// A key that changes the mathematics, with the one value that leaves them as they are here. Absent
// and null are always fine.
struct NeutralValue {
  const char* key;
  const char* value;  // as JSON text
};

constexpr NeutralValue neutral_values[] = {
    {"hidden_act", "\"silu\""},
    {"hidden_activation", "\"silu\""},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"qkv_bias", "false"},
    {"use_bias", "false"},
    {"use_qk_norm", "true"},
    {"use_sliding_window", "false"},
    {"partial_rotary_factor", "1.0"},
    {"rotary_pct", "1.0"},
    {"rope_interleave", "false"},
    {"is_encoder_decoder", "false"},
    {"is_causal", "true"},
    {"shared_expert_intermediate_size", "0"},
    {"n_shared_experts", "0"},
    {"num_shared_experts", "0"},
    {"first_k_dense_replace", "0"},
    {"scoring_func", "\"softmax\""},
    {"routed_scaling_factor", "1.0"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"pretraining_tp", "1"},
    {"logit_scale", "1.0"},
    {"logits_scaling", "1.0"},
    {"embedding_multiplier", "1.0"},
    {"residual_multiplier", "1.0"},
    {"num_nextn_predict_layers", "0"},
};

// Keys that are not supported in any form.
constexpr const char* refused_keys[] = {
    "attention_multiplier",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "clip_qkv",
    "query_pre_attn_scalar",
    "attention_chunk_size",
    "text_config",
    "vision_config",
    "alibi",
};

Status check_neutral_keys(const Json& config, const std::string& where) {
  for (const auto& neutral : neutral_values) {
    const auto found = config.find(neutral.key);
    if (found == config.end() || found->is_null()) continue;
    const Json expected = Json::parse(neutral.value);
    if (*found != expected) {
      return refuse(where, fmt::format("\"{}\": {} is not supported, only {}", neutral.key,
                                       dump_json(*found).substr(0, 80), neutral.value));
    }
  }
  for (const char* key : refused_keys) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null()) {
      return refuse(where, fmt::format("\"{}\" is not supported", key));
    }
  }
  const auto quantization = config.find("quantization_config");
  if (quantization != config.end() && !quantization->is_null()) {
    const auto named = JsonReader(*quantization, where).string_or("quant_method", "unnamed");
    const std::string method = named.ok() ? named.value() : "unnamed";
    auto error = refuse(where, fmt::format("\"quantization_config\": the model is quantized "
                                           "already (method {})",
                                           method));
    error.hint = "start from the 16-bit model";
    return error;
  }
  const auto layer_types = config.find("layer_types");
  if (layer_types != config.end() && layer_types->is_array()) {
    for (const Json& type : *layer_types) {
      if (type != "full_attention") {
        return refuse(where, fmt::format("\"layer_types\": {} is not supported, only "
                                         "\"full_attention\"",
                                         dump_json(type).substr(0, 80)));
      }
    }
  }
  return {};
}

// rope_theta stands at the top, or in rope_parameters in files of newer writers. The scaling itself
// has two names for its kind, and only "default" (none) is supported.
Result<double> read_rope_theta(const Json& config, const std::string& where) {
  NS_TRY_ASSIGN(double theta, JsonReader(config, where).number_or("rope_theta", 10000.0));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    const JsonReader reader(*found, where + ": \"" + key + "\"");
    for (const auto& [name, value] : found->items()) {
      if (value.is_object() || value.is_array()) {
        return refuse(where, fmt::format("\"{}\": \"{}\" is not supported", key, name));
      }
    }
    NS_TRY_ASSIGN(const std::string old_type, reader.string_or("type", "default"));
    NS_TRY_ASSIGN(const std::string type, reader.string_or("rope_type", old_type));
    if (type != "default") {
      return refuse(where,
                    fmt::format("\"{}\" of type \"{}\" is not supported, only none", key, type));
    }
    NS_TRY_ASSIGN(const double factor, reader.number_or("partial_rotary_factor", 1.0));
    if (factor != 1.0) {
      return refuse(where,
                    fmt::format("\"{}\": partial_rotary_factor {} is not supported", key, factor));
    }
    NS_TRY_ASSIGN(theta, reader.number_or("rope_theta", theta));
  }
  if (theta < 1.0 || theta > 1e12) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"rope_theta\": {} is not between 1 and 1e12", theta), where, ""};
  }
  return theta;
}

Status read_experts(const JsonReader& reader, const std::string& where, const Json& config,
                    ModelConfig& out) {
  NS_TRY_ASSIGN(out.experts, reader.integer("num_experts", 1, 4096));
  NS_TRY_ASSIGN(out.experts_per_token, reader.integer("num_experts_per_tok", 1, out.experts));
  NS_TRY_ASSIGN(out.moe_intermediate_size, reader.integer("moe_intermediate_size", 1, size_max));
  if (out.experts * out.layers > experts_total_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} layers of {} experts are more than {} experts in all", out.layers,
                             out.experts, experts_total_max),
                 where, ""};
  }
  // The default of the reference implementation is false.
  NS_TRY_ASSIGN(out.norm_topk_prob, reader.boolean_or("norm_topk_prob", false));
  NS_TRY_ASSIGN(out.decoder_sparse_step,
                reader.integer_or("decoder_sparse_step", 1, 1, layers_max));
  const auto dense = config.find("mlp_only_layers");
  if (dense == config.end() || dense->is_null()) return {};
  NS_TRY_ASSIGN(const Json* layers, reader.array("mlp_only_layers"));
  for (const Json& layer : *layers) {
    if (!layer.is_number_unsigned() ||
        layer.get<std::uint64_t>() >= static_cast<std::uint64_t>(out.layers)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("\"mlp_only_layers\": {} is not a layer below {}",
                               dump_json(layer).substr(0, 80), out.layers),
                   where, ""};
    }
    out.mlp_only_layers.push_back(layer.get<std::int64_t>());
  }
  return {};
}

// One id, a list of ids, or null.
Result<std::vector<std::int64_t>> read_ids(const Json& config, const char* key,
                                           std::int64_t vocab_size, const std::string& where) {
  std::vector<std::int64_t> ids;
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return ids;
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("\"{}\": {} is not a token id below the vocab_size {}", key,
                               dump_json(id).substr(0, 80), vocab_size),
                   where, ""};
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

Result<DType> read_torch_dtype(const JsonReader& reader, const std::string& where) {
  // Newer writers call it dtype.
  NS_TRY_ASSIGN(const std::string newer, reader.string_or("dtype", "bfloat16"));
  NS_TRY_ASSIGN(const std::string name, reader.string_or("torch_dtype", newer));
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  return refuse(where, fmt::format("\"torch_dtype\": \"{}\" is not supported, only bfloat16, "
                                   "float16 and float32",
                                   name.substr(0, 80)));
}

Status read_sizes(const JsonReader& reader, const std::string& where, ModelConfig& out) {
  NS_TRY_ASSIGN(out.hidden_size, reader.integer("hidden_size", 1, size_max));
  NS_TRY_ASSIGN(out.layers, reader.integer("num_hidden_layers", 1, layers_max));
  NS_TRY_ASSIGN(out.heads, reader.integer("num_attention_heads", 1, 65536));
  NS_TRY_ASSIGN(out.kv_heads, reader.integer_or("num_key_value_heads", out.heads, 1, 65536));
  NS_TRY_ASSIGN(out.vocab_size, reader.integer("vocab_size", 1, vocab_max));
  NS_TRY_ASSIGN(out.max_position_embeddings,
                reader.integer("max_position_embeddings", 1, positions_max));
  if (out.heads % out.kv_heads != 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                             out.heads, out.kv_heads),
                 where, ""};
  }
  if (reader.has("head_dim")) {
    NS_TRY_ASSIGN(out.head_dim, reader.integer("head_dim", 1, 65536));
  } else if (out.hidden_size % out.heads != 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("no head_dim, and hidden_size {} is not a multiple of "
                             "num_attention_heads {}",
                             out.hidden_size, out.heads),
                 where, ""};
  } else {
    out.head_dim = out.hidden_size / out.heads;
  }
  if (out.head_dim % 2 != 0) {
    return refuse(where,
                  fmt::format("head_dim {} is odd, and rotary positions need pairs", out.head_dim));
  }
  if (out.q_size() > size_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("num_attention_heads {} times head_dim {} is more than {}", out.heads,
                             out.head_dim, size_max),
                 where, ""};
  }
  return {};
}

Result<ModelFamily> read_family(const JsonReader& reader, const std::string& where) {
  NS_TRY_ASSIGN(const std::string model_type, reader.string("model_type"));
  const auto family = model_family_from(model_type);
  if (family && is_supported(*family)) return *family;
  return refuse(where, fmt::format("\"model_type\": \"{}\" is not supported; supported are {}",
                                   model_type.substr(0, 80), supported_families()));
}

}  // namespace

const char* to_string(ModelFamily family) {
  return facts_of(family).model_type;
}

std::optional<ModelFamily> model_family_from(std::string_view model_type) {
  for (const auto& entry : families) {
    if (model_type == entry.model_type) return entry.family;
  }
  return std::nullopt;
}

bool is_supported(ModelFamily family) {
  return facts_of(family).supported;
}

bool ModelConfig::is_sparse_layer(std::int64_t layer) const {
  return experts > 0 && (layer + 1) % decoder_sparse_step == 0 &&
         std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) == mlp_only_layers.end();
}

std::int64_t ModelConfig::parameters() const {
  std::int64_t total = 0;
  for (const auto& tensor : expected_tensors(*this)) {
    std::int64_t count = 1;
    for (const auto dimension : tensor.shape) count *= dimension;
    total += count;
  }
  return total;
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& where,
                                       std::string_view generation_text) {
  NS_TRY_ASSIGN(const Json config, parse_json(text, where));
  const JsonReader reader(config, where);
  ModelConfig out;
  NS_TRY_ASSIGN(out.family, read_family(reader, where));
  NS_TRY(check_neutral_keys(config, where));
  NS_TRY(read_sizes(reader, where, out));
  if (out.family == ModelFamily::qwen3_moe) NS_TRY(read_experts(reader, where, config, out));
  bool has_dense_layer = false;
  for (std::int64_t layer = 0; layer < out.layers; ++layer) {
    has_dense_layer = has_dense_layer || !out.is_sparse_layer(layer);
  }
  // MoE files state it even where no layer uses it.
  if (has_dense_layer) {
    NS_TRY_ASSIGN(out.intermediate_size, reader.integer("intermediate_size", 1, size_max));
  }
  NS_TRY_ASSIGN(out.rope_theta, read_rope_theta(config, where));
  NS_TRY_ASSIGN(out.rms_norm_eps, reader.number("rms_norm_eps"));
  if (!(out.rms_norm_eps > 0.0) || out.rms_norm_eps > 0.1) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"rms_norm_eps\": {} is not between 0 and 0.1", out.rms_norm_eps),
                 where, ""};
  }
  NS_TRY_ASSIGN(out.tie_word_embeddings, reader.boolean_or("tie_word_embeddings", false));
  NS_TRY_ASSIGN(out.torch_dtype, read_torch_dtype(reader, where));
  NS_TRY_ASSIGN(const auto bos, read_ids(config, "bos_token_id", out.vocab_size, where));
  if (!bos.empty()) out.bos_id = bos.front();
  NS_TRY_ASSIGN(out.eos_ids, read_ids(config, "eos_token_id", out.vocab_size, where));
  if (!generation_text.empty()) {
    const std::string beside = where + " generation_config.json";
    NS_TRY_ASSIGN(const Json generation, parse_json(generation_text, beside));
    NS_TRY_ASSIGN(auto ids, read_ids(generation, "eos_token_id", out.vocab_size, beside));
    if (!ids.empty()) out.eos_ids = std::move(ids);
  }
  return out;
}

Result<ModelConfig> load_model_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  NS_TRY_ASSIGN(const std::string text, read_file(path, config_bytes_max));
  // NVIDIA's exports say it in a file of its own, and config.json knows nothing of it.
  if (file_exists(join_path(folder, "hf_quant_config.json"))) {
    auto error =
        refuse(path, "\"hf_quant_config.json\" lies beside it: the model is quantized already");
    error.hint = "start from the 16-bit model";
    return error;
  }
  const std::string generation_path = join_path(folder, "generation_config.json");
  std::string generation;
  if (file_exists(generation_path)) {
    NS_TRY_ASSIGN(generation, read_file(generation_path, config_bytes_max));
  }
  return parse_model_config(text, path, generation);
}

}  // namespace nightshift
