// Log-likelihoods of given tokens. Knows engines; must not know tasks, groups or text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schema/result.h"
#include "stages/engine/engine.h"

namespace nightshift {

// One context and continuations of it that are scored one by one.
struct ScoreRequest {
  std::vector<std::int32_t> context;                     // at least one token
  std::vector<std::vector<std::int32_t>> continuations;  // each at least one token
};

// Sum of log p(token | what comes before it) over each continuation, natural logarithm. The context
// runs once; its continuations overwrite each other behind it in the cache. Requests share steps.
// `on_done(n)` after each group of requests, with the number finished so far.
Result<std::vector<std::vector<double>>> score_continuations(
    Engine& engine, std::span<const ScoreRequest> requests,
    const std::function<void(std::size_t)>& on_done = {});

}  // namespace nightshift
