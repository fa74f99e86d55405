// A model as an explicit list of operations. Knows shapes and tensor names; must not know weights,
// kernels or files.
//
// One forward step runs the ops in order over a batch of m token rows (of any mix of sequences).
// Executing the list as `build_graph` makes it, one op at a time, is the *unfused* model: every
// linear, norm, rotation and sum is an op of its own, as frameworks run it. fusion.h rewrites it.
//
// A value is a matrix [rows, width] of float32 (or int32 where said). Its rows are
//   tokens   m, one per token of the batch
//   routed   m * experts_per_token, one per (token, chosen expert)
//   logits   the rows whose next token is asked for
//   experts  experts + 1 offsets (int32)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/model_io/model_config.h"

namespace nightshift {

enum class OpKind {
  embed,           // () -> x[tokens, hidden]                       weights: table
  rms_norm,        // x -> y                                        weights: norm
  linear,          // x[., k] -> y[., n]                            weights: matrices, stacked on n
  split_qkv,       // qkv -> q, k, v
  head_norm,       // x[tokens, heads*hd] -> y, per head            weights: norm
  rope,            // x -> x rotated (in place)
  kv_append,       // k, v -> ()
  attention,       // q -> y
  add,             // residual, x -> residual + x (in place)
  router_top_k,    // logits -> ids, weights
  expert_sort,     // ids -> offsets, source
  expert_gather,   // x[tokens], source -> y[routed]
  grouped_linear,  // x[routed], offsets -> y[routed]               weights: one matrix an expert
  silu,            // x -> silu(x) (in place)
  mul,             // y, x -> y * x (in place)
  expert_combine,  // x[routed], source, weights -> y[tokens]
  select_rows,     // x[tokens] -> y[logits]
  // made by fusion rules only
  add_rms_norm,         // residual, x -> residual (in place), y         weights: norm
  qk_norm_rope_append,  // qkv -> q (k and v go to the cache)            weights: q norm, k norm or
                        // none
  gate_up_silu,  // x[routed], offsets -> y[routed]               weights: gate then up, by expert
};
const char* to_string(OpKind kind);

enum class RowDomain { tokens, routed, logits, experts };

struct GraphValue {
  std::string name;  // "layers.0.attn_norm.out"
  RowDomain rows = RowDomain::tokens;
  int width = 0;
  bool is_int = false;  // int32 instead of float32
};

struct Op {
  OpKind kind = OpKind::embed;
  std::string name;                  // "layers.0.q_proj": what patterns (keep, ignore) match
  int layer = -1;                    // -1: outside of the layers
  std::vector<int> in;               // value ids
  std::vector<int> out;              // an op in place has the same id in `in` and `out`
  std::vector<std::string> weights;  // tensor names without ".weight"
  int heads = 0;                     // head_norm, rope: heads in its row
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<Op> ops;
  int logits = -1;  // the last value

  int add_value(std::string name, RowDomain rows, int width, bool is_int = false);
  // The value id of `name`, -1 when there is none.
  int find_value(const std::string& name) const;
  // Index of the op of that name, -1 when there is none.
  int find_op(const std::string& name) const;
};

// The unfused graph of a model. Weight names are those of the Hugging Face directory.
Graph build_graph(const ModelConfig& config);

// Sizes of a ModelConfig are checked to be small; kernels count in int.
constexpr int narrow(std::int64_t size) {
  return static_cast<int>(size);
}

// What time and memory are reported by: "experts", "attention", "embedding", "head", "norm".
const char* part_of(const Op& op);

// A shell-style pattern: `*` stands for any run of characters.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace nightshift
