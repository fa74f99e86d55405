#include "stages/engine/arena.h"

#include <algorithm>
#include <limits>

namespace nightshift {

namespace {

constexpr std::size_t alignment = 64;

struct Lifetime {
  int value = 0;
  int first = std::numeric_limits<int>::max();
  int last = -1;
  std::size_t bytes = 0;
};

std::vector<Lifetime> lifetimes(const Graph& graph, const StepShape& largest) {
  std::vector<Lifetime> lives(graph.values.size());
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const auto count = static_cast<std::size_t>(rows_of(graph.values[v], largest)) *
                       static_cast<std::size_t>(graph.values[v].width);
    lives[v].value = static_cast<int>(v);
    lives[v].bytes = (count * 4 + alignment - 1) / alignment * alignment;
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const auto touch = [&](int value) {
      Lifetime& life = lives[static_cast<std::size_t>(value)];
      life.first = std::min(life.first, static_cast<int>(i));
      life.last = std::max(life.last, static_cast<int>(i));
    };
    for (int value : graph.ops[i].in) touch(value);
    for (int value : graph.ops[i].out) touch(value);
  }
  if (graph.logits >= 0) {
    lives[static_cast<std::size_t>(graph.logits)].last = static_cast<int>(graph.ops.size());
  }
  return lives;
}

}  // namespace

int rows_of(const GraphValue& value, const StepShape& shape) {
  switch (value.rows) {
    case RowDomain::tokens: return shape.rows;
    case RowDomain::routed: return shape.rows * shape.experts_per_token;
    case RowDomain::logits: return shape.logit_rows;
    case RowDomain::experts: return shape.experts + 1;
  }
  return 0;
}

ArenaPlan plan_arena(const Graph& graph, const StepShape& largest, bool keep_all) {
  std::vector<Lifetime> lives = lifetimes(graph, largest);
  std::erase_if(lives, [](const Lifetime& life) { return life.last < 0; });
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; });
  ArenaPlan plan;
  plan.offsets.assign(graph.values.size(), 0);
  std::vector<const Lifetime*> live;  // placed, and still needed at the op in hand
  for (const Lifetime& life : lives) {
    if (!keep_all) std::erase_if(live, [&](const Lifetime* l) { return l->last < life.first; });
    std::sort(live.begin(), live.end(), [&](const Lifetime* a, const Lifetime* b) {
      return plan.offsets[static_cast<std::size_t>(a->value)] <
             plan.offsets[static_cast<std::size_t>(b->value)];
    });
    std::size_t offset = 0;
    for (const Lifetime* other : live) {
      const std::size_t begin = plan.offsets[static_cast<std::size_t>(other->value)];
      if (offset + life.bytes <= begin) break;
      offset = std::max(offset, begin + other->bytes);
    }
    plan.offsets[static_cast<std::size_t>(life.value)] = offset;
    plan.bytes = std::max(plan.bytes, offset + life.bytes);
    live.push_back(&life);
  }
  return plan;
}

}  // namespace nightshift
