// The stages of a night, each `(context) -> how it ended`. Knows their names; main.cpp starts one.
// Every stage leaves a complete checkpoint in context.out that the engine loads by itself.
#pragma once

#include "schema/result.h"
#include "stages/night/stage_context.h"

namespace nightshift {

// The 16-bit model, op by op: speed, memory, profile, accuracy, perplexity. Params: tasks, heldout,
// groups.
Result<StageEnd> run_baseline(const StageContext& context);
// Statistics of every linear's input over the samples; leaves calibration.json. Params: data,
// samples, max_tokens, batch, steps, percentile.
Result<StageEnd> run_calibrate(const StageContext& context);
// int8 for what `keep` and `override` allow, layers above the deviation limit put back. Params:
// scheme, prefer, keep, override, activations, deviation_limit, and those of baseline.
Result<StageEnd> run_quantize(const StageContext& context);
// Applies fusion rules; token match against the unfused model. Params: ignore, rules,
// token_match_prompts, token_match_tokens, prompts, and those of baseline.
Result<StageEnd> run_fuse(const StageContext& context);
// Accuracy and perplexity against the 16-bit numbers of the same night; red lines. Params: those of
// baseline.
Result<StageEnd> run_evaluate(const StageContext& context);
// Many requests of mixed lengths, none may fail. Params: requests, concurrency, input_tokens,
// output_tokens, timeout, data.
Result<StageEnd> run_soak(const StageContext& context);

}  // namespace nightshift
