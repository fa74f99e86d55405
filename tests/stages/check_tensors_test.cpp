#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "stages/model_io/files.h"
#include "stages/model_io/model_config.h"

using namespace nightshift;

namespace {

constexpr const char* config_text =
    R"({"model_type": "qwen3_moe", "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 10,
        "max_position_embeddings": 64, "num_experts": 2, "num_experts_per_tok": 1,
        "moe_intermediate_size": 4, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

struct Folder {
  Folder() {
    std::string pattern = "/tmp/nightshift-tensors-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

using Change = std::function<void(std::vector<TensorDecl>&)>;

TensorDecl& tensor(std::vector<TensorDecl>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TensorDecl& decl) { return decl.name == name; });
}

// check_tensors of a model whose weights were changed from what they should be.
std::string check(const Change& change) {
  const Folder folder;
  const auto config = parse_model_config(config_text, "config.json");
  REQUIRE(config.ok());
  std::vector<TensorDecl> tensors;
  for (const auto& expected : expected_tensors(*config)) {
    tensors.push_back({expected.name, DType::bf16, expected.shape});
  }
  change(tensors);
  auto writer = SafetensorsWriter::create(folder.path + "/model.safetensors", tensors);
  REQUIRE(writer.ok());
  for (const auto& decl : writer->order()) {
    const std::vector<std::byte> zeros(*tensor_bytes(decl.dtype, decl.shape));
    REQUIRE(writer->append(decl.name, zeros).ok());
  }
  REQUIRE(writer->finish().ok());
  const auto weights = WeightFiles::open(folder.path);
  REQUIRE(weights.ok());
  const auto status = check_tensors(*config, *weights);
  return status.ok() ? "" : status.error().line();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("check tensors: a complete model passes") {
  CHECK(check([](auto&) {}) == "");
  CHECK(check([](auto& tensors) {
          for (auto& decl : tensors) decl.dtype = DType::f32;
        }) == "");
}

TEST_CASE("check tensors: a missing tensor is named with its shape") {
  const std::string line = check([](auto& tensors) {
    std::erase_if(tensors, [](const TensorDecl& decl) { return has(decl.name, "experts.1."); });
  });
  CHECK(has(line, "\"model.layers.0.mlp.experts.1.gate_proj.weight\" [4, 8] is missing (3 of 17"));
}

TEST_CASE("check tensors: a wrong shape is told with both") {
  const std::string line = check([](auto& tensors) {
    tensor(tensors, "model.layers.0.self_attn.k_proj.weight").shape = {8, 4};
  });
  CHECK(has(line, "k_proj.weight\" has shape [8, 4], but config.json makes it [4, 8]"));
}

TEST_CASE("check tensors: an extra tensor is named") {
  CHECK(has(check([](auto& tensors) {
              tensors.push_back({"model.layers.0.self_attn.q_proj.bias", DType::bf16, {8}});
            }),
            "\"model.layers.0.self_attn.q_proj.bias\" has no place in a qwen3_moe model (1"));
  CHECK(has(check([](auto& tensors) {
              tensors.push_back({"lm_head.weight", DType::bf16, {9, 8}});
            }),
            "\"lm_head.weight\" has no place"));
}

TEST_CASE("check tensors: a stored copy of the tied head and rotary tables are harmless") {
  CHECK(check([](auto& tensors) {
          tensors.push_back({"lm_head.weight", DType::bf16, {10, 8}});
          tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2}});
        }) == "");
}

TEST_CASE("check tensors: a quantized tensor is refused by its type") {
  CHECK(has(check([](auto& tensors) {
              tensor(tensors, "model.layers.0.self_attn.q_proj.weight").dtype = DType::f8_e4m3;
            }),
            "q_proj.weight\" is F8_E4M3; models are loaded from BF16, F16 or F32"));
}
