// The units whose precision is decided as one, as deployment engines demand: q, k and v of a layer;
// its output projection; all experts of a layer (gate, up and down); a dense MLP; the router; the
// head. Knows graphs and patterns; must not know weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/engine/graph.h"

namespace nightshift {

struct PlanUnit {
  std::string name;                  // "layers.0.mlp.experts", "layers.0.self_attn.qkv"
  std::vector<int> ops;              // the products, indices into Graph::ops, rising
  int last_op = 0;                   // the op behind which the unit's effect is seen
  std::vector<int> outputs;          // value ids compared there
  std::vector<std::string> weights;  // tensor names without ".weight"
  std::string format = "bf16";       // what the plan gives it: "bf16" or "int8"
  std::string reason;                // why, for people
};

struct PlanRules {
  std::vector<std::string> keep;                 // patterns: stay at 16 bits
  std::map<std::string, std::string> overrides;  // pattern -> "bf16" | "int8"; win over all else
};

// The units of an unfused graph with the format that the rules give each: experts and dense MLPs
// int8, attention, router and head 16 bits, then `keep`, then `overrides`. Patterns match op names
// ("layers.0.self_attn.q_proj"). Errors: a pattern that matches nothing; one that splits a unit; a
// format that cannot be.
Result<std::vector<PlanUnit>> plan_units(const Graph& graph, const PlanRules& rules);

}  // namespace nightshift
