#include "stages/night/plan_units.h"

#include <algorithm>

namespace nightshift {

namespace {

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// The unit that a product belongs to, by its op's name; the default format and the reason for it.
struct UnitKind {
  std::string suffix;
  const char* format;
  const char* reason;
};
UnitKind kind_of(const std::string& op) {
  if (has(op, "self_attn.o_proj")) {
    return {"self_attn.o_proj", "bf16", "attention stays at 16 bits by default"};
  }
  if (has(op, "self_attn."))
    return {"self_attn.qkv", "bf16", "attention stays at 16 bits by default"};
  if (has(op, "mlp.experts.")) {
    return {"mlp.experts", "int8", "experts hold most bytes and most time"};
  }
  if (op.ends_with("mlp.gate")) return {"mlp.gate", "bf16", "the router stays at 16 bits"};
  if (has(op, "mlp.")) return {"mlp", "int8", "the MLP holds most bytes and most time"};
  return {op, "bf16", "embeddings and head stay at 16 bits"};
}

std::string unit_name(const Op& op) {
  const UnitKind kind = kind_of(op.name);
  return op.layer < 0 ? kind.suffix : "layers." + std::to_string(op.layer) + "." + kind.suffix;
}

// Where a unit's effect is complete: behind the combination of experts, the dense down projection,
// or its own last product.
void find_outputs(const Graph& graph, PlanUnit& unit) {
  unit.last_op = unit.ops.back();
  if (unit.name.ends_with("mlp.experts")) {
    while (graph.ops[static_cast<std::size_t>(unit.last_op)].kind != OpKind::expert_combine) {
      ++unit.last_op;
    }
  }
  if (unit.name.ends_with("self_attn.qkv")) {
    for (int op : unit.ops) unit.outputs.push_back(graph.ops[static_cast<std::size_t>(op)].out[0]);
  } else {
    unit.outputs.push_back(graph.ops[static_cast<std::size_t>(unit.last_op)].out[0]);
  }
}

std::vector<PlanUnit> units_of(const Graph& graph) {
  std::vector<PlanUnit> units;
  for (std::size_t n = 0; n < graph.ops.size(); ++n) {
    const Op& op = graph.ops[n];
    if (op.kind != OpKind::linear && op.kind != OpKind::grouped_linear) continue;
    const std::string name = unit_name(op);
    if (units.empty() || units.back().name != name) {
      PlanUnit unit;
      unit.name = name;
      unit.format = kind_of(op.name).format;
      unit.reason = kind_of(op.name).reason;
      units.push_back(std::move(unit));
    }
    PlanUnit& unit = units.back();
    unit.ops.push_back(static_cast<int>(n));
    unit.weights.insert(unit.weights.end(), op.weights.begin(), op.weights.end());
  }
  for (PlanUnit& unit : units) find_outputs(graph, unit);
  return units;
}

// Gives every unit that `pattern` matches as a whole the format.
Status apply_pattern(const Graph& graph, std::vector<PlanUnit>& units, const std::string& pattern,
                     const std::string& format, const std::string& rule) {
  bool any = false;
  for (PlanUnit& unit : units) {
    std::string in, out;
    for (int op : unit.ops) {
      const std::string& name = graph.ops[static_cast<std::size_t>(op)].name;
      (matches(pattern, name) ? in : out) = name;
    }
    if (in.empty()) continue;
    if (!out.empty()) {
      return Error{ErrorCode::invalid_argument,
                   rule + " pattern '" + pattern + "' matches " + in + " but not " + out,
                   "quantize",
                   "both belong to unit " + unit.name +
                       ", which serving engines load in one format: match all or none"};
    }
    any = true;
    if (format == "int8" && unit.name == "lm_head" &&
        unit.weights.front() == "model.embed_tokens") {
      return Error{ErrorCode::unsupported, "lm_head is tied to the embedding and cannot be int8",
                   "quantize", "leave it out of " + rule};
    }
    unit.format = format;
    unit.reason = rule + " '" + pattern + "'";
  }
  if (!any) {
    return Error{ErrorCode::invalid_argument,
                 rule + " pattern '" + pattern + "' matches no linear of this model", "quantize",
                 "names look like 'layers.0.self_attn.q_proj' or 'layers.0.mlp.experts.down_proj'"};
  }
  return {};
}

}  // namespace

Result<std::vector<PlanUnit>> plan_units(const Graph& graph, const PlanRules& rules) {
  std::vector<PlanUnit> units = units_of(graph);
  for (const std::string& pattern : rules.keep) {
    NS_TRY(apply_pattern(graph, units, pattern, "bf16", "keep"));
  }
  for (const auto& [pattern, format] : rules.overrides) {
    if (format != "bf16" && format != "int8") {
      return Error{ErrorCode::unsupported, "format '" + format + "' of override '" + pattern + "'",
                   "quantize", "this version has bf16 and int8"};
    }
    NS_TRY(apply_pattern(graph, units, pattern, format, "override"));
  }
  return units;
}

}  // namespace nightshift
