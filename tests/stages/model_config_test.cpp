#include "stages/model_io/model_config.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "schema/json.h"
#include "stages/model_io/files.h"

using namespace nightshift;

namespace {

Json tiny_moe() {
  return Json::parse(R"({"model_type": "qwen3_moe", "hidden_size": 40, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
      "max_position_embeddings": 64, "intermediate_size": 24, "num_experts": 3,
      "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": true,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": 7})");
}

Json tiny_dense() {
  return Json::parse(R"({"model_type": "qwen3", "hidden_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
      "max_position_embeddings": 64, "intermediate_size": 24, "rms_norm_eps": 1e-6})");
}

Result<ModelConfig> parse(const Json& config) {
  return parse_model_config(dump_json(config), "config.json");
}

std::string refusal(Json config, const char* key, const Json& value) {
  config[key] = value;
  const auto parsed = parse(config);
  CAPTURE(key);
  REQUIRE_FALSE(parsed.ok());
  return parsed.error().line();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string real_folder() {
  const char* folder = std::getenv("NIGHTSHIFT_REAL_DATA");
  return std::string(folder != nullptr ? folder : "../shared/data/real") + "/configs";
}

}  // namespace

TEST_CASE("model config: the sample model") {
  const auto config = load_model_config("jobs/models/k3-nano");
  REQUIRE(config.ok());
  CHECK(config->family == ModelFamily::qwen3_moe);
  CHECK(config->hidden_size == 256);
  CHECK(config->layers == 6);
  CHECK(config->heads == 4);
  CHECK(config->kv_heads == 2);
  CHECK(config->head_dim == 64);
  CHECK(config->experts == 8);
  CHECK(config->experts_per_token == 2);
  CHECK(config->moe_intermediate_size == 256);
  CHECK(config->norm_topk_prob);
  CHECK(config->vocab_size == 4096);
  CHECK(config->max_position_embeddings == 8192);
  CHECK(config->rope_theta == 10000.0);
  CHECK(config->rms_norm_eps == 1e-6);
  CHECK(config->tie_word_embeddings);
  CHECK(config->bos_id == 4093);
  CHECK(config->eos_ids == std::vector<std::int64_t>{4095, 4093});  // generation_config.json
  CHECK(config->torch_dtype == DType::bf16);
  CHECK(config->parameters() == 11'681'792 + 0);
}

TEST_CASE("model config: the tensors of the sample model are those expected") {
  const auto config = load_model_config("jobs/models/k3-nano");
  const auto weights = WeightFiles::open("jobs/models/k3-nano");
  REQUIRE(config.ok());
  REQUIRE(weights.ok());
  CHECK(expected_tensors(*config).size() == weights->tensors().size());
  CHECK(check_tensors(*config, *weights).ok());
}

TEST_CASE("model config: an explicit head_dim wins, the quotient is the fallback") {
  const auto moe = parse(tiny_moe());
  REQUIRE(moe.ok());
  CHECK(moe->head_dim == 16);  // and not 40 / 4
  CHECK(moe->q_size() == 64);
  CHECK(moe->kv_size() == 32);
  const auto dense = parse(tiny_dense());
  REQUIRE(dense.ok());
  CHECK(dense->head_dim == 10);
  CHECK(has(refusal(tiny_dense(), "num_attention_heads", 3), "num_key_value_heads"));
}

TEST_CASE("model config: dense layers among sparse ones") {
  Json text = tiny_moe();
  text["mlp_only_layers"] = {3};
  text["decoder_sparse_step"] = 2;
  const auto config = parse(text);
  REQUIRE(config.ok());
  // By the reference implementation: (layer + 1) % step == 0, and not in the list.
  CHECK_FALSE(config->is_sparse_layer(0));
  CHECK(config->is_sparse_layer(1));
  CHECK_FALSE(config->is_sparse_layer(2));
  CHECK_FALSE(config->is_sparse_layer(3));
  std::map<std::string, TensorShape> shapes;
  for (const auto& tensor : expected_tensors(*config)) shapes[tensor.name] = tensor.shape;
  CHECK(shapes.at("model.layers.0.mlp.gate_proj.weight") == TensorShape{24, 40});
  CHECK(shapes.at("model.layers.0.mlp.down_proj.weight") == TensorShape{40, 24});
  CHECK(shapes.at("model.layers.1.mlp.gate.weight") == TensorShape{3, 40});
  CHECK(shapes.at("model.layers.1.mlp.experts.2.down_proj.weight") == TensorShape{40, 8});
  CHECK(shapes.at("model.layers.0.self_attn.q_proj.weight") == TensorShape{64, 40});
  CHECK(shapes.at("model.layers.0.self_attn.k_proj.weight") == TensorShape{32, 40});
  CHECK(shapes.at("model.layers.0.self_attn.o_proj.weight") == TensorShape{40, 64});
  CHECK(shapes.at("model.layers.0.self_attn.q_norm.weight") == TensorShape{16});
  CHECK(shapes.at("lm_head.weight") == TensorShape{100, 40});
  CHECK(shapes.count("model.layers.1.mlp.gate_proj.weight") == 0);
}

TEST_CASE("model config: keys that change the mathematics are refused by name") {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"rope_scaling", Json{{"rope_type", "yarn"}, {"factor", 4.0}}},
      {"rope_scaling", Json{{"type", "linear"}, {"factor", 2.0}}},
      {"rope_parameters", Json{{"rope_type", "llama3"}}},
      {"rope_parameters", Json{{"full_attention", Json{{"rope_theta", 1e4}}}}},
      {"use_sliding_window", true},
      {"layer_types", Json{"full_attention", "sliding_attention"}},
      {"attention_bias", true},
      {"hidden_act", "gelu"},
      {"quantization_config", Json{{"quant_method", "fp8"}}},
      {"partial_rotary_factor", 0.5},
      {"shared_expert_intermediate_size", 128},
      {"final_logit_softcapping", 30.0},
      {"torch_dtype", "float8_e4m3fn"},
  };
  for (const auto& [key, value] : cases) {
    const std::string line = refusal(tiny_moe(), key, value);
    CAPTURE(line);
    CHECK(has(line, std::string("\"") + key + "\""));
    CHECK(parse([&, k = key, v = value] {
            Json config = tiny_moe();
            config[k] = v;
            return config;
          }())
              .error()
              .code == ErrorCode::unsupported);
  }
  CHECK(has(refusal(tiny_moe(), "quantization_config", Json{{"quant_method", "fp8"}}), "fp8"));
}

TEST_CASE("model config: neutral values of those keys are fine") {
  Json config = tiny_moe();
  config["rope_scaling"] = nullptr;
  config["sliding_window"] = 4096;  // not in use
  config["use_sliding_window"] = false;
  config["hidden_act"] = "silu";
  config["partial_rotary_factor"] = 1.0;
  config["layer_types"] = {"full_attention"};
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  config["dtype"] = "float16";
  const auto parsed = parse(config);
  REQUIRE(parsed.ok());
  CHECK(parsed->rope_theta == 5e5);
  CHECK(parsed->torch_dtype == DType::f16);
}

TEST_CASE("model config: numbers are bounded") {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"hidden_size", 0},
      {"hidden_size", -1},
      {"hidden_size", 1u << 30},
      {"hidden_size", 1.5},
      {"hidden_size", "256"},
      {"num_hidden_layers", 1e9},
      {"num_key_value_heads", 3},
      {"num_attention_heads", 0},
      {"head_dim", 0},
      {"head_dim", 15},
      {"head_dim", 1000000},
      {"vocab_size", 0},
      {"num_experts", 0},
      {"num_experts_per_tok", 4},
      {"num_experts_per_tok", 0},
      {"moe_intermediate_size", 0},
      {"mlp_only_layers", Json{4}},
      {"mlp_only_layers", Json{-1}},
      {"decoder_sparse_step", 0},
      {"rms_norm_eps", 0.0},
      {"rms_norm_eps", 1.0},
      {"rope_theta", 0.0},
      {"eos_token_id", 100},
      {"eos_token_id", Json{1, "x"}},
      {"bos_token_id", -1},
      {"max_position_embeddings", 0},
      {"tie_word_embeddings", 1},
  };
  for (const auto& [key, value] : cases) {
    const std::string line = refusal(tiny_moe(), key, value);
    CAPTURE(line);
    CHECK(has(line, key));
  }
  Json huge = tiny_moe();
  huge["num_hidden_layers"] = 10'000;
  huge["num_experts"] = 4096;
  CHECK_FALSE(parse(huge).ok());
}

TEST_CASE("model config: a missing number is named") {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "rms_norm_eps", "num_experts", "moe_intermediate_size", "model_type"}) {
    Json config = tiny_moe();
    config.erase(key);
    const auto parsed = parse(config);
    REQUIRE_FALSE(parsed.ok());
    CHECK(has(parsed.error().line(), std::string("\"") + key + "\" is missing"));
  }
  CHECK_FALSE(parse_model_config("[]", "config.json").ok());
  CHECK_FALSE(parse_model_config("", "config.json").ok());
  CHECK(load_model_config("/nowhere").error().code == ErrorCode::not_found);
}

TEST_CASE("model config: families that are not supported are refused by name") {
  for (const char* family : {"llama", "qwen2", "qwen2_moe", "mixtral", "olmoe", "bert"}) {
    const std::string line = refusal(tiny_moe(), "model_type", family);
    CHECK(has(line, std::string("\"") + family +
                        "\" is not supported; supported are qwen3, "
                        "qwen3_moe"));
  }
}

TEST_CASE("model config: eos ids of generation_config.json win") {
  const auto parsed =
      parse_model_config(dump_json(tiny_moe()), "config.json", R"({"eos_token_id": [1, 2]})");
  REQUIRE(parsed.ok());
  CHECK(parsed->eos_ids == std::vector<std::int64_t>{1, 2});
  CHECK(parse(tiny_moe())->eos_ids == std::vector<std::int64_t>{7});
  CHECK_FALSE(parse_model_config(dump_json(tiny_moe()), "c", R"({"eos_token_id": [200]})").ok());
}

TEST_CASE("model config: real configurations load or are refused by name") {
  if (!std::filesystem::exists(real_folder())) {
    MESSAGE("skipped: no data");
    return;
  }
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(real_folder())) {
    const std::string path = entry.path();
    if (!has(path, "_config.json") || has(path, "hf_quant")) continue;
    CAPTURE(path);
    const auto text = read_file(path, 1 << 20);
    REQUIRE(text.ok());
    const auto parsed = parse_model_config(*text, path);
    loaded += parsed.ok() ? 1 : 0;
    const std::string name = entry.path().filename();
    // Plain Qwen3 text models. Of the NVFP4 ones only hf_quant_config.json, not part of this text,
    // says that they are quantized.
    const bool expected = (has(name, "Qwen--Qwen3-") && !has(name, "FP8") && !has(name, "-VL-")) ||
                          has(name, "nvidia--Qwen3-235B-A22B-NVFP4");
    CHECK(parsed.ok() == expected);
    if (parsed.ok()) continue;
    const std::string line = parsed.error().line();
    // Some of other families hold Infinity, which is not JSON.
    const bool named =
        has(line, "not supported") || has(line, "quantized already") || has(line, "not valid JSON");
    CAPTURE(line);
    CHECK(named);
  }
  CHECK(loaded >= 7);
}

TEST_CASE("model config: sizes of real models") {
  const std::string path = real_folder() + "/Qwen--Qwen3-30B-A3B_config.json";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: no data");
    return;
  }
  const auto config = parse_model_config(read_file(path, 1 << 20).value(), path);
  REQUIRE(config.ok());
  CHECK(config->q_size() == 4096);  // and not hidden_size 2048
  CHECK(config->kv_size() == 512);
  CHECK(config->parameters() == 30'532'122'624);  // the 30.5 B of its model card
  const std::string small = real_folder() + "/Qwen--Qwen3-0.6B_config.json";
  const auto dense = parse_model_config(read_file(small, 1 << 20).value(), small);
  REQUIRE(dense.ok());
  CHECK(dense->parameters() == 596'049'920);  // 0.6 B with its tied embedding
}
