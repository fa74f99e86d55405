#include "stages/engine/kv_cache.h"

#include <cstring>

namespace nightshift {

KvCache::KvCache(const ModelConfig& config, const KvPolicy& policy, MemoryAccount& account)
    : block_tokens_(policy.block_tokens) {
  total_blocks_ = static_cast<int>((policy.capacity_tokens + block_tokens_ - 1) / block_tokens_);
  const std::size_t element = policy.format == kernels::KvFormat::f32 ? 4 : 2;
  const std::size_t side_bytes =
      static_cast<std::size_t>(total_blocks_) * static_cast<std::size_t>(config.kv_heads) *
      static_cast<std::size_t>(block_tokens_) * static_cast<std::size_t>(config.head_dim) * element;
  memory_ = Buffer(account, MemoryUse::kv_cache,
                   side_bytes * 2 * static_cast<std::size_t>(config.layers));
  // Touched once here, so that no measurement pays for page faults.
  if (memory_.bytes() > 0) std::memset(memory_.data(), 0, memory_.bytes());
  for (int l = 0; l < config.layers; ++l) {
    std::byte* base = memory_.data() + side_bytes * 2 * static_cast<std::size_t>(l);
    layers_.push_back({policy.format, base, base + side_bytes, static_cast<int>(config.kv_heads),
                       static_cast<int>(config.head_dim), block_tokens_});
  }
  for (int b = total_blocks_ - 1; b >= 0; --b) free_.push_back(b);
}

Result<SequenceId> KvCache::open(int tokens) {
  const int needed = blocks_for(tokens);
  if (needed > free_blocks()) {
    return Error{ErrorCode::unavailable,
                 "a sequence of " + std::to_string(tokens) + " tokens needs " +
                     std::to_string(needed) + " KV blocks, " + std::to_string(free_blocks()) +
                     " of " + std::to_string(total_blocks_) + " are free",
                 "kv cache", "close a sequence, or give the cache more tokens"};
  }
  int index = 0;
  while (index < static_cast<int>(slots_.size()) && slots_[static_cast<std::size_t>(index)].open) {
    ++index;
  }
  if (index == static_cast<int>(slots_.size())) slots_.emplace_back();
  Slot& fresh = slots_[static_cast<std::size_t>(index)];
  fresh.open = true;
  fresh.length = 0;
  fresh.blocks.assign(free_.end() - needed, free_.end());
  free_.resize(free_.size() - static_cast<std::size_t>(needed));
  return SequenceId{index};
}

void KvCache::close(SequenceId id) {
  Slot& closed = slot(id);
  free_.insert(free_.end(), closed.blocks.begin(), closed.blocks.end());
  closed.blocks.clear();
  closed.open = false;
  closed.length = 0;
}

int KvCache::capacity(SequenceId id) const {
  return static_cast<int>(slot(id).blocks.size()) * block_tokens_;
}

}  // namespace nightshift
