#include "stages/engine/fusion.h"

#include <algorithm>

namespace nightshift {

namespace {

using FormatOf = std::function<std::string(const std::string&)>;

bool is_ignored(const FusionPlan& plan, const Op& op) {
  return std::any_of(plan.ignore.begin(), plan.ignore.end(),
                     [&](const std::string& pattern) { return matches(pattern, op.name); });
}

// What a rule works on: the graph being rewritten and the account of what happened.
struct Rewrite {
  Graph& graph;
  const FusionPlan& plan;
  const FormatOf& format_of;
  FusionReport& report;
  std::string rule;
  int sites = 0;

  Op* op_at(std::size_t i) { return i < graph.ops.size() ? &graph.ops[i] : nullptr; }

  bool is_kind(std::size_t i, OpKind kind) {
    const Op* op = op_at(i);
    return op != nullptr && op->kind == kind;
  }

  // True when none of the ops [begin, end) is ignored; else records the first one that is.
  bool may_touch(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (is_ignored(plan, graph.ops[i])) {
        report.skipped.push_back({rule, graph.ops[i].name, "matches an ignore pattern"});
        return false;
      }
    }
    return true;
  }

  // True when all named weights are stored in one format; else records it against `op`.
  bool same_format(const std::vector<std::string>& weights, const std::string& op) {
    for (const std::string& weight : weights) {
      if (format_of(weight) != format_of(weights.front())) {
        report.skipped.push_back({rule, op,
                                  weights.front() + " is " + format_of(weights.front()) + ", " +
                                      weight + " is " + format_of(weight) +
                                      ": only the same precision is fused"});
        return false;
      }
    }
    return true;
  }

  void replace(std::size_t begin, std::size_t end, std::vector<Op> by) {
    auto first = graph.ops.begin() + static_cast<std::ptrdiff_t>(begin);
    auto last = graph.ops.begin() + static_cast<std::ptrdiff_t>(end);
    first = graph.ops.erase(first, last);
    graph.ops.insert(first, std::make_move_iterator(by.begin()), std::make_move_iterator(by.end()));
    ++sites;
  }
};

std::string layer_scope(const Op& op) {
  return "layers." + std::to_string(op.layer) + ".";
}

int width_of(const Graph& graph, int value) {
  return graph.values[static_cast<std::size_t>(value)].width;
}

void fuse_qkv(Rewrite& r) {
  for (std::size_t i = 0; i + 2 < r.graph.ops.size(); ++i) {
    if (!r.is_kind(i, OpKind::linear) || !r.is_kind(i + 1, OpKind::linear) ||
        !r.is_kind(i + 2, OpKind::linear) || !r.graph.ops[i].name.ends_with("q_proj")) {
      continue;
    }
    const Op q = r.graph.ops[i], k = r.graph.ops[i + 1], v = r.graph.ops[i + 2];
    if (!r.may_touch(i, i + 3)) continue;
    if (!r.same_format({q.weights[0], k.weights[0], v.weights[0]}, q.name)) continue;
    const int width =
        width_of(r.graph, q.out[0]) + width_of(r.graph, k.out[0]) + width_of(r.graph, v.out[0]);
    const std::string scope = layer_scope(q);
    const int qkv = r.graph.add_value(scope + "self_attn.qkv_proj.out", RowDomain::tokens, width);
    Op product{OpKind::linear,
               scope + "self_attn.qkv_proj",
               q.layer,
               q.in,
               {qkv},
               {q.weights[0], k.weights[0], v.weights[0]},
               0};
    Op split{OpKind::split_qkv,
             scope + "self_attn.split_qkv",
             q.layer,
             {qkv},
             {q.out[0], k.out[0], v.out[0]},
             {},
             0};
    r.replace(i, i + 3, {product, split});
  }
}

// split_qkv, [q_norm, k_norm,] rope_q, rope_k, kv_append.
void fuse_qk_norm_rope_append(Rewrite& r) {
  for (std::size_t i = 0; i < r.graph.ops.size(); ++i) {
    if (!r.is_kind(i, OpKind::split_qkv)) {
      // An unfused layer: say why this rule found nothing to work on.
      if (r.is_kind(i, OpKind::kv_append) && i > 0) {
        r.report.skipped.push_back({r.rule, r.graph.ops[i].name, "rule qkv was not applied here"});
      }
      continue;
    }
    const bool normed = r.is_kind(i + 1, OpKind::head_norm) && r.is_kind(i + 2, OpKind::head_norm);
    const std::size_t rope = i + (normed ? 3 : 1);
    if (!r.is_kind(rope, OpKind::rope) || !r.is_kind(rope + 1, OpKind::rope) ||
        !r.is_kind(rope + 2, OpKind::kv_append)) {
      r.report.skipped.push_back({r.rule, r.graph.ops[i].name, "the ops behind it are others"});
      continue;
    }
    if (!r.may_touch(i, rope + 3)) {
      i = rope + 2;
      continue;
    }
    const Op& split = r.graph.ops[i];
    Op fused{OpKind::qk_norm_rope_append,
             layer_scope(split) + "self_attn.qk_norm_rope_append",
             split.layer,
             split.in,
             r.graph.ops[rope].out,
             {},
             r.graph.ops[rope].heads};
    if (normed) {
      fused.weights = {r.graph.ops[i + 1].weights[0], r.graph.ops[i + 2].weights[0]};
    }
    r.replace(i, rope + 3, {fused});
  }
}

// gate, up, silu, mul: of experts (grouped) or of a dense layer.
void fuse_gate_up_silu(Rewrite& r) {
  for (std::size_t i = 0; i + 3 < r.graph.ops.size(); ++i) {
    const bool grouped = r.is_kind(i, OpKind::grouped_linear);
    const OpKind product = grouped ? OpKind::grouped_linear : OpKind::linear;
    if (!r.is_kind(i, product) || !r.is_kind(i + 1, product) || !r.is_kind(i + 2, OpKind::silu) ||
        !r.is_kind(i + 3, OpKind::mul)) {
      continue;
    }
    const Op gate = r.graph.ops[i], up = r.graph.ops[i + 1], mul = r.graph.ops[i + 3];
    if (!r.may_touch(i, i + 4)) continue;
    std::vector<std::string> weights = gate.weights;
    weights.insert(weights.end(), up.weights.begin(), up.weights.end());
    if (!r.same_format(weights, gate.name)) continue;
    const std::string name =
        layer_scope(gate) + (grouped ? "mlp.experts." : "mlp.") + "gate_up_silu";
    r.replace(
        i, i + 4,
        {Op{OpKind::gate_up_silu, name, gate.layer, gate.in, mul.out, std::move(weights), 0}});
  }
}

void fuse_residual_norm(Rewrite& r) {
  for (std::size_t i = 0; i + 1 < r.graph.ops.size(); ++i) {
    if (!r.is_kind(i, OpKind::add)) continue;
    const Op add = r.graph.ops[i], norm = r.graph.ops[i + 1];
    if (norm.kind != OpKind::rms_norm || norm.in[0] != add.out[0]) {
      r.report.skipped.push_back({r.rule, add.name, "no norm of the same rows follows"});
      continue;
    }
    if (!r.may_touch(i, i + 2)) continue;
    r.replace(i, i + 2,
              {Op{OpKind::add_rms_norm,
                  add.name + "_norm",
                  add.layer,
                  add.in,
                  {add.out[0], norm.out[0]},
                  norm.weights,
                  0}});
  }
}

struct Rule {
  const char* name;
  void (*apply)(Rewrite&);
};
constexpr Rule rules[] = {
    {"qkv", fuse_qkv},
    {"qk_norm_rope_append", fuse_qk_norm_rope_append},
    {"gate_up_silu", fuse_gate_up_silu},
    {"residual_norm", fuse_residual_norm},
};

Status check_rules(const FusionPlan& plan) {
  for (const std::string& rule : plan.rules) {
    const auto& known = fusion_rules();
    if (std::find(known.begin(), known.end(), rule) == known.end()) {
      std::string list;
      for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
      return Error{ErrorCode::invalid_argument, "unknown fusion rule '" + rule + "'", "fuse.rules",
                   "rules are " + list};
    }
  }
  return {};
}

}  // namespace

const std::vector<std::string>& fusion_rules() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Rule& rule : rules) list.push_back(rule.name);
    return list;
  }();
  return names;
}

Result<FusionReport> apply_fusion(Graph& graph, const FusionPlan& plan, const FormatOf& format_of) {
  NS_TRY(check_rules(plan));
  FusionReport report;
  for (const std::string& pattern : plan.ignore) {
    const bool hit = std::any_of(graph.ops.begin(), graph.ops.end(),
                                 [&](const Op& op) { return matches(pattern, op.name); });
    if (!hit) report.skipped.push_back({"ignore", pattern, "matches no op of this model"});
  }
  report.ops_before = static_cast<int>(graph.ops.size());
  for (const Rule& rule : rules) {
    if (std::find(plan.rules.begin(), plan.rules.end(), rule.name) == plan.rules.end()) continue;
    Rewrite rewrite{graph, plan, format_of, report, rule.name};
    rule.apply(rewrite);
    report.applied.emplace_back(rule.name, rewrite.sites);
  }
  report.ops_after = static_cast<int>(graph.ops.size());
  return report;
}

}  // namespace nightshift
