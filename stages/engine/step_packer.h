// Packs rows of many sequences into steps that respect the engine's limits. Knows engines only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "stages/engine/engine.h"

namespace nightshift {

class StepPacker {
 public:
  // Called after each step with its logits rows, valid until the next one, and the tag of each row.
  using OnStep = std::function<void(const float* logits, std::span<const std::size_t> tags)>;

  explicit StepPacker(Engine& engine, OnStep on_step = {})
      : engine_(engine), on_step_(std::move(on_step)) {}

  // Appends `ids` to a sequence, in pieces where a step is full. Rows ids[logits_from ..] give a
  // row of logits each, tagged first_tag, first_tag + 1, ...
  void add(SequenceId sequence, std::span<const std::int32_t> ids, std::size_t logits_from,
           std::size_t first_tag);
  // Runs what waits.
  void flush();

 private:
  Engine& engine_;
  OnStep on_step_;
  Batch batch_;
  std::vector<std::size_t> tags_;
};

}  // namespace nightshift
