// Key/value memory in blocks, handed to sequences. Knows shapes and blocks; must not know kernels'
// mathematics, requests or sampling.
//
// All layers share one numbering: block b of layer l lies at l's base + b. A sequence holds a table
// of blocks; position p is in table[p / block_tokens]. The *static* policy reserves every block
// that a sequence can ever need when it is opened, so a running sequence never fails for memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "schema/result.h"
#include "stages/engine/memory.h"
#include "stages/model_io/model_config.h"

namespace nightshift {

struct KvPolicy {
  kernels::KvFormat format = kernels::KvFormat::bf16;
  int block_tokens = 64;
  std::int64_t capacity_tokens = 0;  // over all sequences; rounded up to whole blocks
};

struct SequenceId {
  int value = -1;
};

class KvCache {
 public:
  // Throws std::bad_alloc when the memory cannot be had.
  KvCache(const ModelConfig& config, const KvPolicy& policy, MemoryAccount& account);

  // Reserves blocks for `tokens` positions. unavailable when there are too few free blocks.
  Result<SequenceId> open(int tokens);
  void close(SequenceId id);

  // Positions written so far. set_length may go back (the next append overwrites) or forward.
  int length(SequenceId id) const { return slot(id).length; }
  void set_length(SequenceId id, int tokens) { slot(id).length = tokens; }
  int capacity(SequenceId id) const;
  const std::int32_t* blocks(SequenceId id) const { return slot(id).blocks.data(); }

  const kernels::KvLayer& layer(int index) const {
    return layers_[static_cast<std::size_t>(index)];
  }
  int free_blocks() const { return static_cast<int>(free_.size()); }
  int total_blocks() const { return total_blocks_; }
  int blocks_for(int tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }

 private:
  struct Slot {
    bool open = false;
    int length = 0;
    std::vector<std::int32_t> blocks;
  };
  Slot& slot(SequenceId id) { return slots_[static_cast<std::size_t>(id.value)]; }
  const Slot& slot(SequenceId id) const { return slots_[static_cast<std::size_t>(id.value)]; }

  int block_tokens_ = 0;
  int total_blocks_ = 0;
  Buffer memory_;
  std::vector<kernels::KvLayer> layers_;
  std::vector<std::int32_t> free_;
  std::vector<Slot> slots_;
};

}  // namespace nightshift
