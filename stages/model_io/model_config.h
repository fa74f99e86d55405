// What a model is: config.json read into checked numbers, and the tensors that it must have. Knows
// the Hugging Face names of families, keys and tensors; must not know how a model is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"
#include "stages/model_io/dtype.h"
#include "stages/model_io/safetensors.h"
#include "stages/model_io/weight_files.h"

namespace nightshift {

// Equal to config.json's model_type. Only qwen3 and qwen3_moe load so far; the others are refused
// by name.
enum class ModelFamily { llama, qwen2, qwen2_moe, qwen3, qwen3_moe, mixtral, olmoe };

const char* to_string(ModelFamily family);
std::optional<ModelFamily> model_family_from(std::string_view model_type);
bool is_supported(ModelFamily family);

// All numbers are positive and small enough that any product of two of them fits in 62 bits;
// heads % kv_heads == 0, head_dim is even.
struct ModelConfig {
  ModelFamily family = ModelFamily::qwen3;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;           // the explicit value, or hidden_size / heads
  std::int64_t intermediate_size = 0;  // of the dense MLP; 0 where every layer is sparse
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;

  std::int64_t experts = 0;  // 0 in dense families, and so the four below
  std::int64_t experts_per_token = 0;
  std::int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = false;
  std::int64_t decoder_sparse_step = 1;
  std::vector<std::int64_t> mlp_only_layers;

  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::optional<std::int64_t> bos_id;
  std::vector<std::int64_t> eos_ids;  // of generation_config.json where it has them; may be empty
  DType torch_dtype = DType::bf16;    // what config.json says; the tensors' own types decide

  bool is_sparse_layer(std::int64_t layer) const;  // has a router and experts
  std::int64_t q_size() const { return heads * head_dim; }
  std::int64_t kv_size() const { return kv_heads * head_dim; }
  std::int64_t parameters() const;  // from expected_tensors
};

// Reads folder/config.json and, where it exists, folder/generation_config.json. A key that changes
// the mathematics and is not supported (rope_scaling, sliding windows, biases, quantization_config,
// ...) is refused by name.
Result<ModelConfig> load_model_config(const std::string& folder);
// The same from texts, for tests; `generation_text` may be empty.
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& where,
                                       std::string_view generation_text = {});

struct ExpectedTensor {
  std::string name;
  TensorShape shape;
};

// In the order of the forward pass. A tied lm_head is left out.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Every expected tensor is there with its shape in F16, BF16 or F32, and no other is (but for a
// stored copy of a tied lm_head and rotary inv_freq tables). The error names the first one that is
// not so, and how many there are.
Status check_tensors(const ModelConfig& config, const WeightFiles& weights);

}  // namespace nightshift
