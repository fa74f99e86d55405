#include "stages/engine/step_packer.h"

#include <algorithm>

namespace nightshift {

void StepPacker::add(SequenceId sequence, std::span<const std::int32_t> ids,
                     std::size_t logits_from, std::size_t first_tag) {
  const EngineOptions& limits = engine_.options();
  for (std::size_t at = 0; at < ids.size();) {
    const auto rows = static_cast<std::size_t>(limits.step_rows_max - batch_.rows());
    const auto logits = static_cast<std::size_t>(limits.logit_rows_max) - tags_.size();
    // Rows before logits_from cost no logits row.
    const std::size_t silent = logits_from > at ? logits_from - at : 0;
    const std::size_t count = std::min({rows, silent + logits, ids.size() - at});
    if (count == 0) {
      flush();
      continue;
    }
    const std::size_t from = std::min(silent, count);
    engine_.append(batch_, sequence, ids.subspan(at, count), from);
    for (std::size_t n = from; n < count; ++n) tags_.push_back(first_tag + at + n - logits_from);
    at += count;
  }
}

void StepPacker::flush() {
  if (batch_.rows() == 0) return;
  const float* logits = engine_.run(batch_);
  if (on_step_ && !tags_.empty()) on_step_(logits, tags_);
  batch_.clear();
  tags_.clear();
}

}  // namespace nightshift
