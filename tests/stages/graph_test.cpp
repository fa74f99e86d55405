// The op graph, its fusion rules and its memory plan.
#include "stages/engine/graph.h"

#include <doctest/doctest.h>

#include <set>

#include "stages/engine/arena.h"
#include "stages/engine/fusion.h"

using namespace nightshift;

namespace {

ModelConfig small_moe() {
  ModelConfig config;
  config.family = ModelFamily::qwen3_moe;
  config.hidden_size = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 64;
  config.experts = 4;
  config.experts_per_token = 2;
  config.moe_intermediate_size = 16;
  config.tie_word_embeddings = true;
  return config;
}

std::string all_bf16(const std::string&) {
  return "bf16";
}

int count_kind(const Graph& graph, OpKind kind) {
  int count = 0;
  for (const Op& op : graph.ops) count += op.kind == kind ? 1 : 0;
  return count;
}

// Every value is written before it is read.
bool is_ordered(const Graph& graph) {
  std::set<int> written;
  for (const Op& op : graph.ops) {
    for (int in : op.in) {
      if (written.count(in) == 0) return false;
    }
    written.insert(op.out.begin(), op.out.end());
  }
  return written.count(graph.logits) == 1;
}

}  // namespace

TEST_CASE("graph: an unfused layer is 24 ops, in an order that can run") {
  const Graph graph = build_graph(small_moe());
  // Per layer: norm, q, k, v, 2 head norms, 2 rotations, append, attention, o, sum; norm, router,
  // top-k, sort, gather, gate, up, silu, mul, down, combine, sum. Around them: embed, select, norm,
  // head.
  CHECK(graph.ops.size() == 2 * 24 + 4);
  CHECK(is_ordered(graph));
  CHECK(graph.values[static_cast<std::size_t>(graph.logits)].width == 64);
}

TEST_CASE("graph: a dense layer has no router") {
  ModelConfig config = small_moe();
  config.mlp_only_layers = {0, 1};
  config.intermediate_size = 48;
  const Graph graph = build_graph(config);
  CHECK(count_kind(graph, OpKind::router_top_k) == 0);
  CHECK(count_kind(graph, OpKind::linear) == 2 * 7 + 1);
  CHECK(is_ordered(graph));
}

TEST_CASE("fusion: all rules leave 13 ops a layer, in an order that can run") {
  Graph graph = build_graph(small_moe());
  auto report = apply_fusion(graph, {fusion_rules(), {}}, all_bf16);
  REQUIRE(report.ok());
  // qkv, qk_norm_rope_append, attention, o, sum+norm, router, top-k, sort, gather, gate_up_silu,
  // down, combine, sum+norm; the first norm and the last sum stay alone.
  CHECK(graph.ops.size() == 2 * 13 + 4 + 1);
  CHECK(report->ops_before == 52);
  CHECK(report->ops_after == 31);
  CHECK(is_ordered(graph));
}

TEST_CASE("fusion: weights of different formats are never put into one op") {
  Graph graph = build_graph(small_moe());
  const auto format = [](const std::string& name) {
    return name.find("k_proj") != std::string::npos ? "int8" : "bf16";
  };
  auto report = apply_fusion(graph, {{"qkv"}, {}}, format);
  REQUIRE(report.ok());
  CHECK(report->ops_after == report->ops_before);
  REQUIRE(report->skipped.size() == 2);
  CHECK(report->skipped[0].reason.find("only the same precision") != std::string::npos);
}

TEST_CASE("fusion: an ignored op is left alone, with the reason") {
  Graph graph = build_graph(small_moe());
  auto report = apply_fusion(graph, {fusion_rules(), {"layers.0.*silu"}}, all_bf16);
  REQUIRE(report.ok());
  CHECK(count_kind(graph, OpKind::gate_up_silu) == 1);
  CHECK(count_kind(graph, OpKind::silu) == 1);
  CHECK(report->skipped[0].op == "layers.0.mlp.experts.silu");
}

TEST_CASE("fusion: a pattern that matches nothing is said, an unknown rule is an error") {
  Graph graph = build_graph(small_moe());
  auto report = apply_fusion(graph, {{"qkv"}, {"*mask*"}}, all_bf16);
  REQUIRE(report.ok());
  CHECK(report->skipped[0].reason == "matches no op of this model");
  auto wrong = apply_fusion(graph, {{"qvk"}, {}}, all_bf16);
  REQUIRE(!wrong.ok());
  CHECK(wrong.error().hint.find("qkv") != std::string::npos);
}

TEST_CASE("arena: values that are needed together never overlap") {
  for (const bool fused : {false, true}) {
    Graph graph = build_graph(small_moe());
    if (fused) REQUIRE(apply_fusion(graph, {fusion_rules(), {}}, all_bf16).ok());
    const StepShape shape{10, 4, 4, 2};
    const ArenaPlan plan = plan_arena(graph, shape);
    const auto bytes = [&](int v) {
      const GraphValue& value = graph.values[static_cast<std::size_t>(v)];
      return static_cast<std::size_t>(rows_of(value, shape) * value.width) * 4;
    };
    // A value lives from its first to its last op.
    const auto lives = [&](int v, std::size_t at) {
      std::size_t first = graph.ops.size(), last = 0;
      for (std::size_t n = 0; n < graph.ops.size(); ++n) {
        for (const auto* ids : {&graph.ops[n].in, &graph.ops[n].out}) {
          for (int id : *ids) {
            if (id == v) {
              first = std::min(first, n);
              last = n;
            }
          }
        }
      }
      return first <= at && at <= last;
    };
    for (std::size_t n = 0; n < graph.ops.size(); ++n) {
      std::vector<int> alive;
      for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
        if (lives(v, n)) alive.push_back(v);
      }
      for (int a : alive) {
        for (int b : alive) {
          if (a >= b) continue;
          const std::size_t begin_a = plan.offsets[static_cast<std::size_t>(a)];
          const std::size_t begin_b = plan.offsets[static_cast<std::size_t>(b)];
          const bool apart = begin_a + bytes(a) <= begin_b || begin_b + bytes(b) <= begin_a;
          CHECK_MESSAGE(apart, graph.values[static_cast<std::size_t>(a)].name
                                   << " and " << graph.values[static_cast<std::size_t>(b)].name);
        }
      }
    }
  }
}

TEST_CASE("patterns: a star stands for any run of characters") {
  CHECK(matches("*.self_attn.*", "layers.0.self_attn.q_proj"));
  CHECK(matches("lm_head", "lm_head"));
  CHECK(!matches("lm_head", "lm_head.x"));
  CHECK(matches("*", ""));
  CHECK(matches("layers.*.mlp.*_proj", "layers.11.mlp.experts.down_proj"));
  CHECK(!matches("layers.1.*", "layers.11.mlp"));
}
