#include "stages/engine/scoring.h"

#include <algorithm>

#include "stages/engine/step_packer.h"

namespace nightshift {

namespace {

// A group of requests that fit into the cache together.
class ScoreGroup {
 public:
  ScoreGroup(Engine& engine, std::vector<std::vector<double>>& scores)
      : engine_(engine),
        scores_(scores),
        packer_(engine, [this](const float* logits, std::span<const std::size_t> tags) {
          take(logits, tags);
        }) {}
  ~ScoreGroup() {
    for (const Member& member : members_) engine_.cache().close(member.sequence);
  }
  ScoreGroup(const ScoreGroup&) = delete;
  ScoreGroup& operator=(const ScoreGroup&) = delete;

  // False when the cache has no room for it now.
  bool add(const ScoreRequest& request, std::size_t index) {
    std::size_t longest = 0;
    for (const auto& c : request.continuations) longest = std::max(longest, c.size());
    auto opened = engine_.cache().open(static_cast<int>(request.context.size() + longest));
    if (!opened) return false;
    members_.push_back({&request, index, *opened});
    return true;
  }
  bool empty() const { return members_.empty(); }

  void run() {
    // The last context token goes with each continuation: its logits score the first token.
    for (const Member& m : members_) {
      const std::span<const std::int32_t> context = m.request->context;
      packer_.add(m.sequence, context.first(context.size() - 1), context.size() - 1, 0);
    }
    packer_.flush();
    for (std::size_t c = 0; run_continuation(c); ++c) {
    }
  }

 private:
  struct Member {
    const ScoreRequest* request;
    std::size_t index;
    SequenceId sequence;
  };
  // What a row of logits is asked for.
  struct Target {
    std::int32_t token;
    double* score;
  };

  // Continuation `c` of every member; false when none has so many.
  bool run_continuation(std::size_t c) {
    targets_.clear();
    for (const Member& m : members_) {
      if (c >= m.request->continuations.size()) continue;
      const auto& continuation = m.request->continuations[c];
      std::vector<std::int32_t> rows = {m.request->context.back()};
      rows.insert(rows.end(), continuation.begin(), continuation.end() - 1);
      const std::size_t first_tag = targets_.size();
      for (std::int32_t token : continuation) targets_.push_back({token, &scores_[m.index][c]});
      engine_.cache().set_length(m.sequence, static_cast<int>(m.request->context.size()) - 1);
      packer_.add(m.sequence, rows, 0, first_tag);
    }
    packer_.flush();
    return !targets_.empty();
  }

  void take(const float* logits, std::span<const std::size_t> tags) {
    std::vector<std::int32_t> tokens;
    for (std::size_t tag : tags) tokens.push_back(targets_[tag].token);
    std::vector<double> likelihoods(tags.size());
    engine_.backend().log_likelihood(engine_.context(), logits, static_cast<int>(tags.size()),
                                     narrow(engine_.config().vocab_size), tokens.data(),
                                     likelihoods.data());
    for (std::size_t n = 0; n < tags.size(); ++n) *targets_[tags[n]].score += likelihoods[n];
  }

  Engine& engine_;
  std::vector<std::vector<double>>& scores_;
  StepPacker packer_;
  std::vector<Member> members_;
  std::vector<Target> targets_;  // by tag
};

Error does_not_fit(const ScoreRequest& request, const Engine& engine) {
  return Error{ErrorCode::invalid_argument,
               "a context of " + std::to_string(request.context.size()) +
                   " tokens and its continuation do not fit into the KV cache of " +
                   std::to_string(engine.options().kv_tokens) + " tokens",
               "scoring", "shorten the item, or give the engine more KV tokens"};
}

}  // namespace

Result<std::vector<std::vector<double>>> score_continuations(
    Engine& engine, std::span<const ScoreRequest> requests,
    const std::function<void(std::size_t)>& on_done) {
  std::vector<std::vector<double>> scores;
  for (const ScoreRequest& request : requests) {
    const auto& all = request.continuations;
    if (request.context.empty() ||
        std::any_of(all.begin(), all.end(), [](const auto& c) { return c.empty(); })) {
      return Error{ErrorCode::invalid_argument, "a context or a continuation is empty", "scoring",
                   "give at least one token each"};
    }
    scores.emplace_back(all.size(), 0.0);
  }
  for (std::size_t next = 0; next < requests.size();) {
    ScoreGroup group(engine, scores);
    while (next < requests.size() && group.add(requests[next], next)) ++next;
    if (group.empty()) return does_not_fit(requests[next], engine);
    group.run();
    if (on_done) on_done(next);
  }
  return scores;
}

}  // namespace nightshift
