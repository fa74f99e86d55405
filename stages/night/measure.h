// Measures the checkpoint that a stage leaves and writes the numbers into it. Knows speed.h and
// quality.h; must not know which stage asks.
#pragma once

#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/engine/checkpoint_meta.h"
#include "stages/night/quality.h"
#include "stages/night/stage_context.h"
#include "stages/night/text_model.h"

namespace nightshift {

struct MeasureWhat {
  bool speed = false;
  bool quality = false;
};

// Loads context.out (complete but for the numbers), measures, and gives `meta` a record of it. Also
// says, by a metric named "model", which model (digest) the checkpoint holds: rows of the report
// with one digest share their numbers.
Result<MeasurementRecord*> measure_checkpoint(const StageContext& context, const TextModel& text,
                                              const QualitySpec& spec, MeasureWhat what,
                                              CheckpointMeta& meta);

// Ids that bench prompts are cut from: the held-out sets' chats, or, without any, ids drawn evenly
// from the vocabulary with a fixed seed.
Result<std::vector<TokenId>> bench_stream(const TextModel& text, const QualitySpec& spec,
                                          std::int64_t vocab_size);

// One side of a comparison: a checkpoint, run by its fusion plan or op by op.
struct MatchSide {
  std::string folder;
  bool apply_fusion = true;
};
struct MatchSize {
  int prompts = 32;
  int prompt_tokens = 64;
  int new_tokens = 64;
};
// The share of generated tokens that are equal, position by position, greedy from the same prompts
// (no end-of-text): what comes after the first difference of a prompt counts as it falls.
Result<double> token_match(const MatchSide& a, const MatchSide& b,
                           const std::vector<TokenId>& stream, const MatchSize& size);

}  // namespace nightshift
