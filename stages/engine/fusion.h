// Named rewrite rules that put several ops into one. Knows graphs and precision by name; must not
// know weights or kernels. Every rule keeps the mathematics: same inputs, same weights, same
// precision; only the rounding of intermediate sums may differ.
//
//   qkv                  q, k and v projection of one layer -> one product (+ split_qkv)
//   qk_norm_rope_append  split, head norms, rotations and the append to the cache -> one op
//   gate_up_silu         gate and up products of all experts, SiLU and the product -> one op
//   residual_norm        residual sum and the norm behind it -> one op
//
// A rule that does not apply somewhere says why: the list of skips is part of the report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/engine/graph.h"

namespace nightshift {

struct FusionPlan {
  std::vector<std::string> rules;   // applied in the order of fusion_rules(); empty: unfused
  std::vector<std::string> ignore;  // patterns over op names: an op that matches is left alone
};

struct FusionSkip {
  std::string rule;
  std::string op;
  std::string reason;
};

struct FusionReport {
  int ops_before = 0;
  int ops_after = 0;
  std::vector<std::pair<std::string, int>> applied;  // rule -> sites
  std::vector<FusionSkip> skipped;
};

// All rules, in the order in which they are applied.
const std::vector<std::string>& fusion_rules();

// Rewrites `graph`. `format_of` gives the stored format of a weight by its tensor name ("bf16",
// "int8"): matrices of different formats are never put into one op. An unknown rule is an error; an
// ignore pattern that matches no op is reported as a skip of the rule "ignore".
Result<FusionReport> apply_fusion(Graph& graph, const FusionPlan& plan,
                                  const std::function<std::string(const std::string&)>& format_of);

}  // namespace nightshift
