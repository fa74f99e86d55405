#include "stages/engine/graph.h"

#include <algorithm>

namespace nightshift {

const char* to_string(OpKind kind) {
  switch (kind) {
    case OpKind::embed: return "embed";
    case OpKind::rms_norm: return "rms_norm";
    case OpKind::linear: return "linear";
    case OpKind::split_qkv: return "split_qkv";
    case OpKind::head_norm: return "head_norm";
    case OpKind::rope: return "rope";
    case OpKind::kv_append: return "kv_append";
    case OpKind::attention: return "attention";
    case OpKind::add: return "add";
    case OpKind::router_top_k: return "router_top_k";
    case OpKind::expert_sort: return "expert_sort";
    case OpKind::expert_gather: return "expert_gather";
    case OpKind::grouped_linear: return "grouped_linear";
    case OpKind::silu: return "silu";
    case OpKind::mul: return "mul";
    case OpKind::expert_combine: return "expert_combine";
    case OpKind::select_rows: return "select_rows";
    case OpKind::add_rms_norm: return "add_rms_norm";
    case OpKind::qk_norm_rope_append: return "qk_norm_rope_append";
    case OpKind::gate_up_silu: return "gate_up_silu";
  }
  return "add";
}

int Graph::add_value(std::string name, RowDomain rows, int width, bool is_int) {
  values.push_back({std::move(name), rows, width, is_int});
  return static_cast<int>(values.size()) - 1;
}

int Graph::find_value(const std::string& name) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int Graph::find_op(const std::string& name) const {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

namespace {

// Families whose attention normalises each head of q and k.
bool has_qk_norm(const ModelConfig& config) {
  return config.family == ModelFamily::qwen3 || config.family == ModelFamily::qwen3_moe;
}

// Adds the ops of one model, part by part. `hidden_` is the value of the residual stream.
class GraphBuilder {
 public:
  explicit GraphBuilder(const ModelConfig& config) : config_(config) {}

  Graph build() {
    hidden_ = value("embed", RowDomain::tokens, narrow(config_.hidden_size));
    op(OpKind::embed, "embed_tokens", {}, {hidden_}, {"model.embed_tokens"});
    for (layer_ = 0; layer_ < config_.layers; ++layer_) {
      attention();
      if (config_.is_sparse_layer(layer_)) {
        experts();
      } else {
        dense_mlp();
      }
    }
    layer_ = -1;
    head();
    return std::move(graph_);
  }

 private:
  std::string scoped(const std::string& name) const {
    return layer_ < 0 ? name : "layers." + std::to_string(layer_) + "." + name;
  }
  std::string tensor(const std::string& name) const {
    return "model.layers." + std::to_string(layer_) + "." + name;
  }
  int value(const std::string& name, RowDomain rows, int width, bool is_int = false) {
    return graph_.add_value(scoped(name), rows, width, is_int);
  }
  Op& op(OpKind kind, const std::string& name, std::vector<int> in, std::vector<int> out,
         std::vector<std::string> weights = {}) {
    graph_.ops.push_back(
        {kind, scoped(name), layer_, std::move(in), std::move(out), std::move(weights), 0});
    return graph_.ops.back();
  }
  int linear(const std::string& name, const std::string& weight, int x, int width) {
    const int y = value(name + ".out", graph_.values[static_cast<std::size_t>(x)].rows, width);
    op(OpKind::linear, name, {x}, {y}, {weight});
    return y;
  }

  void attention() {
    const int q_width = narrow(config_.q_size());
    const int kv_width = narrow(config_.kv_size());
    const int x = value("attn_norm.out", RowDomain::tokens, narrow(config_.hidden_size));
    op(OpKind::rms_norm, "input_layernorm", {hidden_}, {x}, {tensor("input_layernorm")});
    int q = linear("self_attn.q_proj", tensor("self_attn.q_proj"), x, q_width);
    int k = linear("self_attn.k_proj", tensor("self_attn.k_proj"), x, kv_width);
    const int v = linear("self_attn.v_proj", tensor("self_attn.v_proj"), x, kv_width);
    if (has_qk_norm(config_)) {
      q = head_norm("self_attn.q_norm", q, narrow(config_.heads));
      k = head_norm("self_attn.k_norm", k, narrow(config_.kv_heads));
    }
    op(OpKind::rope, "self_attn.rope_q", {q}, {q}).heads = narrow(config_.heads);
    op(OpKind::rope, "self_attn.rope_k", {k}, {k}).heads = narrow(config_.kv_heads);
    op(OpKind::kv_append, "self_attn.kv_append", {k, v}, {});
    const int y = value("attention.out", RowDomain::tokens, q_width);
    op(OpKind::attention, "self_attn.attention", {q}, {y});
    const int o =
        linear("self_attn.o_proj", tensor("self_attn.o_proj"), y, narrow(config_.hidden_size));
    op(OpKind::add, "attn_residual", {hidden_, o}, {hidden_});
  }

  int head_norm(const std::string& name, int x, int heads) {
    const int y = value(name + ".out", RowDomain::tokens, heads * narrow(config_.head_dim));
    op(OpKind::head_norm, name, {x}, {y}, {tensor(name)}).heads = heads;
    return y;
  }

  int mlp_norm() {
    const int x = value("mlp_norm.out", RowDomain::tokens, narrow(config_.hidden_size));
    op(OpKind::rms_norm, "post_attention_layernorm", {hidden_}, {x},
       {tensor("post_attention_layernorm")});
    return x;
  }

  void experts() {
    const int x = mlp_norm();
    const int top_k = narrow(config_.experts_per_token);
    const int router = linear("mlp.gate", tensor("mlp.gate"), x, narrow(config_.experts));
    const int ids = value("mlp.expert_ids", RowDomain::tokens, top_k, true);
    const int weights = value("mlp.expert_weights", RowDomain::tokens, top_k);
    op(OpKind::router_top_k, "mlp.router_top_k", {router}, {ids, weights});
    const int offsets = value("mlp.expert_offsets", RowDomain::experts, 1, true);
    const int source = value("mlp.expert_source", RowDomain::routed, 1, true);
    op(OpKind::expert_sort, "mlp.expert_sort", {ids}, {offsets, source});
    const int routed = value("mlp.routed", RowDomain::routed, narrow(config_.hidden_size));
    op(OpKind::expert_gather, "mlp.expert_gather", {x, source}, {routed});

    const int width = narrow(config_.moe_intermediate_size);
    const int gate = grouped("gate_proj", routed, offsets, width);
    const int up = grouped("up_proj", routed, offsets, width);
    op(OpKind::silu, "mlp.experts.silu", {gate}, {gate});
    op(OpKind::mul, "mlp.experts.mul", {gate, up}, {gate});
    const int down = grouped("down_proj", gate, offsets, narrow(config_.hidden_size));
    const int y = value("mlp.out", RowDomain::tokens, narrow(config_.hidden_size));
    op(OpKind::expert_combine, "mlp.expert_combine", {down, source, weights}, {y});
    op(OpKind::add, "mlp_residual", {hidden_, y}, {hidden_});
  }

  int grouped(const std::string& projection, int x, int offsets, int width) {
    std::vector<std::string> names;
    for (int e = 0; e < config_.experts; ++e) {
      names.push_back(tensor("mlp.experts." + std::to_string(e) + "." + projection));
    }
    const std::string name = "mlp.experts." + projection;
    const int y = value(name + ".out", RowDomain::routed, width);
    op(OpKind::grouped_linear, name, {x, offsets}, {y}, std::move(names));
    return y;
  }

  void dense_mlp() {
    const int x = mlp_norm();
    const int gate =
        linear("mlp.gate_proj", tensor("mlp.gate_proj"), x, narrow(config_.intermediate_size));
    const int up =
        linear("mlp.up_proj", tensor("mlp.up_proj"), x, narrow(config_.intermediate_size));
    op(OpKind::silu, "mlp.silu", {gate}, {gate});
    op(OpKind::mul, "mlp.mul", {gate, up}, {gate});
    const int y =
        linear("mlp.down_proj", tensor("mlp.down_proj"), gate, narrow(config_.hidden_size));
    op(OpKind::add, "mlp_residual", {hidden_, y}, {hidden_});
  }

  void head() {
    const int rows = value("last_hidden", RowDomain::logits, narrow(config_.hidden_size));
    op(OpKind::select_rows, "select_rows", {hidden_}, {rows});
    const int x = value("final_norm.out", RowDomain::logits, narrow(config_.hidden_size));
    op(OpKind::rms_norm, "norm", {rows}, {x}, {"model.norm"});
    const std::string weight = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    graph_.logits = linear("lm_head", weight, x, narrow(config_.vocab_size));
  }

  const ModelConfig& config_;
  Graph graph_;
  int layer_ = -1;
  int hidden_ = -1;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

Graph build_graph(const ModelConfig& config) {
  return GraphBuilder(config).build();
}

const char* part_of(const Op& op) {
  if (contains(op.name, "norm") && !contains(op.name, "self_attn")) return "norm";
  if (contains(op.name, "residual")) return "norm";
  if (contains(op.name, "self_attn")) return "attention";
  if (contains(op.name, "mlp.")) return "experts";
  if (contains(op.name, "embed")) return "embedding";
  return "head";
}

bool matches(const std::string& pattern, const std::string& text) {
  std::size_t p = 0, t = 0, star = std::string::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace nightshift
