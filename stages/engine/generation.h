// Fixed-batch generation: the same number of tokens for every prompt. Knows engines and sampling;
// must not know text or clocks. serving.h has the loop for requests that come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schema/result.h"
#include "stages/engine/engine.h"

namespace nightshift {

struct GenerationOptions {
  int new_tokens = 128;
  kernels::SampleParams sampling;  // greedy by default
  std::uint64_t seed = 1;
  bool stop_at_eos = false;  // false: always new_tokens (benches, token match)
};

// The uniform number that decides token `position` of sequence `sequence`: depends on nothing else,
// so that neither the batch nor a restart changes what is drawn.
float sample_uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

// Generates for all prompts together: prefill in steps of at most step_rows_max rows, then one step
// a token. `on_first` is called when every sequence has its first token. Needs as many logit rows
// and KV tokens as there are prompts and tokens; `unavailable` when the cache is too small.
Result<std::vector<std::vector<std::int32_t>>> generate_batch(
    Engine& engine, std::span<const std::vector<std::int32_t>> prompts,
    const GenerationOptions& options, const std::function<void()>& on_first = {});

}  // namespace nightshift
