#include "stages/engine/generation.h"

#include <algorithm>

#include "stages/engine/step_packer.h"

namespace nightshift {

namespace {

// Closes the sequences whatever happens.
class OpenSequences {
 public:
  explicit OpenSequences(KvCache& cache) : cache_(cache) {}
  ~OpenSequences() {
    for (SequenceId id : ids) cache_.close(id);
  }
  OpenSequences(const OpenSequences&) = delete;
  OpenSequences& operator=(const OpenSequences&) = delete;

  std::vector<SequenceId> ids;

 private:
  KvCache& cache_;
};

class BatchGeneration {
 public:
  BatchGeneration(Engine& engine, std::span<const std::vector<std::int32_t>> prompts,
                  const GenerationOptions& options)
      : engine_(engine),
        prompts_(prompts),
        options_(options),
        open_(engine.cache()),
        packer_(engine, [this](const float* logits,
                               std::span<const std::size_t> owners) { draw(logits, owners); }),
        tokens_(prompts.size()),
        uniform_(prompts.size()),
        done_(prompts.size(), false),
        params_(prompts.size(), options.sampling),
        drawn_(prompts.size()) {}

  Result<std::vector<std::vector<std::int32_t>>> run(const std::function<void()>& on_first) {
    for (const auto& prompt : prompts_) {
      NS_TRY_ASSIGN(const SequenceId id,
                    engine_.cache().open(static_cast<int>(prompt.size()) + options_.new_tokens));
      open_.ids.push_back(id);
    }
    for (std::size_t s = 0; s < prompts_.size(); ++s) {
      packer_.add(open_.ids[s], prompts_[s], prompts_[s].size() - 1, s);
    }
    packer_.flush();
    if (on_first) on_first();
    for (int step = 1; step < options_.new_tokens && !all_done(); ++step) {
      for (std::size_t s = 0; s < prompts_.size(); ++s) {
        if (!done_[s]) packer_.add(open_.ids[s], {&tokens_[s].back(), 1}, 0, s);
      }
      packer_.flush();
    }
    return std::move(tokens_);
  }

 private:
  bool all_done() const {
    return std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
  }

  // A token for every sequence whose logits the step gave.
  void draw(const float* logits, std::span<const std::size_t> owners) {
    for (std::size_t n = 0; n < owners.size(); ++n) {
      uniform_[n] = sample_uniform(options_.seed, owners[n], tokens_[owners[n]].size());
    }
    engine_.backend().sample(engine_.context(), logits, static_cast<int>(owners.size()),
                             narrow(engine_.config().vocab_size), params_.data(), uniform_.data(),
                             drawn_.data());
    for (std::size_t n = 0; n < owners.size(); ++n) take(owners[n], drawn_[n]);
  }

  void take(std::size_t s, std::int32_t token) {
    tokens_[s].push_back(std::max(token, 0));  // NaN logits give -1: the caller sees token 0s
    const auto& eos = engine_.config().eos_ids;
    if (options_.stop_at_eos && std::find(eos.begin(), eos.end(), token) != eos.end()) {
      done_[s] = true;
    }
  }

  Engine& engine_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const GenerationOptions& options_;
  OpenSequences open_;
  StepPacker packer_;
  std::vector<std::vector<std::int32_t>> tokens_;
  std::vector<float> uniform_;
  std::vector<bool> done_;
  std::vector<kernels::SampleParams> params_;
  std::vector<std::int32_t> drawn_;
};

}  // namespace

float sample_uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
  // splitmix64 over the three numbers.
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u * (sequence + 1);
  z ^= 0xd1b54a32d192ed03u * (position + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * (1.0f / 16777216.0f);
}

Result<std::vector<std::vector<std::int32_t>>> generate_batch(
    Engine& engine, std::span<const std::vector<std::int32_t>> prompts,
    const GenerationOptions& options, const std::function<void()>& on_first) {
  for (const auto& prompt : prompts) {
    if (prompt.empty()) {
      return Error{ErrorCode::invalid_argument, "a prompt is empty", "generation",
                   "give at least one token"};
    }
  }
  return BatchGeneration(engine, prompts, options).run(on_first);
}

}  // namespace nightshift
