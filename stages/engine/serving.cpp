#include "stages/engine/serving.h"

#include <algorithm>
#include <cmath>

#include "stages/engine/generation.h"

namespace nightshift {

ServingLoop::ServingLoop(Engine& engine, const ServingOptions& options)
    : engine_(engine), options_(options) {
  options_.running_max = std::min(options_.running_max, engine.options().logit_rows_max);
  options_.running_max = std::min(options_.running_max, engine.options().step_rows_max);
}

ServingLoop::~ServingLoop() {
  for (const Live& live : running_) engine_.cache().close(live.sequence);
}

void ServingLoop::submit(ServeRequest request, double now_s) {
  Live live;
  live.result.id = request.id;
  live.result.arrived_s = now_s;
  live.result.error = refusal(request);
  live.request = std::move(request);
  waiting_.push_back(std::move(live));
}

std::string ServingLoop::refusal(const ServeRequest& request) const {
  const ModelConfig& config = engine_.config();
  const std::size_t prompt = request.prompt.size();
  if (prompt == 0) return "the prompt is empty";
  if (request.new_tokens_max < 1) return "new_tokens_max must be at least 1";
  const auto total = static_cast<std::int64_t>(prompt) + request.new_tokens_max;
  if (total > config.max_position_embeddings) {
    return std::to_string(total) + " tokens are beyond the model's context of " +
           std::to_string(config.max_position_embeddings);
  }
  if (engine_.cache().blocks_for(static_cast<int>(total)) > engine_.cache().total_blocks()) {
    return std::to_string(total) + " tokens do not fit into the whole KV cache";
  }
  for (std::int32_t id : request.prompt) {
    if (id < 0 || id >= config.vocab_size) {
      return "token id " + std::to_string(id) + " is outside of the vocabulary of " +
             std::to_string(config.vocab_size);
    }
  }
  const kernels::SampleParams& s = request.sampling;
  if (!std::isfinite(s.temperature) || s.temperature < 0) return "temperature must be 0 or more";
  if (!(s.top_p > 0) || s.top_p > 1) return "top_p must lie in (0, 1]";
  if (s.top_k < 0) return "top_k must be 0 or more";
  return {};
}

bool ServingLoop::cancel(std::uint64_t id) {
  const auto is_it = [id](const Live& live) { return live.request.id == id; };
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    return true;
  }
  const auto running = std::find_if(running_.begin(), running_.end(), is_it);
  if (running == running_.end()) return false;
  engine_.cache().close(running->sequence);
  running_.erase(running);
  return true;
}

void ServingLoop::admit(std::vector<ServeResult>& finished, double now_s) {
  while (!waiting_.empty()) {
    Live& next = waiting_.front();
    if (!next.result.error.empty()) {
      next.result.finished_s = now_s;
      finished.push_back(std::move(next.result));
      waiting_.pop_front();
      continue;
    }
    if (static_cast<int>(running_.size()) >= options_.running_max) return;
    auto opened = engine_.cache().open(static_cast<int>(next.request.prompt.size()) +
                                       next.request.new_tokens_max);
    if (!opened) {
      ++counters_.blocked_on_kv;
      return;
    }
    next.sequence = *opened;
    running_.push_back(std::move(next));
    waiting_.pop_front();
  }
}

void ServingLoop::build() {
  batch_.clear();
  owners_.clear();
  for (std::size_t n = 0; n < running_.size(); ++n) {
    Live& live = running_[n];
    if (live.result.tokens.empty()) continue;
    engine_.append(batch_, live.sequence, {&live.result.tokens.back(), 1}, 0);
    owners_.push_back(n);
  }
  counters_.decode_rows += batch_.rows();
  const int limit =
      std::min(engine_.options().step_rows_max, batch_.rows() + options_.prefill_rows_max);
  for (std::size_t n = 0; n < running_.size() && batch_.rows() < limit; ++n) {
    Live& live = running_[n];
    const std::span<const std::int32_t> prompt = live.request.prompt;
    if (live.prefilled == prompt.size()) continue;
    const auto room = static_cast<std::size_t>(limit - batch_.rows());
    const auto piece =
        prompt.subspan(live.prefilled, std::min(room, prompt.size() - live.prefilled));
    live.prefilled += piece.size();
    counters_.prefill_rows += static_cast<std::int64_t>(piece.size());
    const bool is_last = live.prefilled == prompt.size();
    engine_.append(batch_, live.sequence, piece, is_last ? piece.size() - 1 : piece.size());
    if (is_last) owners_.push_back(n);
  }
  if (batch_.rows() > 0) ++counters_.steps;
}

void ServingLoop::draw(const float* logits, double now_s, std::vector<ServeResult>& finished) {
  const std::size_t count = owners_.size();
  if (count == 0) return;
  std::vector<kernels::SampleParams> params;
  std::vector<float> uniform;
  for (std::size_t owner : owners_) {
    const Live& live = running_[owner];
    params.push_back(live.request.sampling);
    uniform.push_back(
        sample_uniform(live.request.seed, live.request.id, live.result.tokens.size()));
  }
  std::vector<std::int32_t> ids(count);
  engine_.backend().sample(engine_.context(), logits, static_cast<int>(count),
                           narrow(engine_.config().vocab_size), params.data(), uniform.data(),
                           ids.data());
  std::vector<bool> ended(running_.size(), false);
  for (std::size_t n = 0; n < count; ++n) {
    ended[owners_[n]] = take(running_[owners_[n]], ids[n], now_s);
  }
  std::vector<Live> still;
  for (std::size_t n = 0; n < running_.size(); ++n) {
    if (!ended[n]) {
      still.push_back(std::move(running_[n]));
      continue;
    }
    engine_.cache().close(running_[n].sequence);
    finished.push_back(std::move(running_[n].result));
  }
  running_ = std::move(still);
}

// True when the request has ended with this token.
bool ServingLoop::take(Live& live, std::int32_t token, double now_s) {
  ServeResult& result = live.result;
  if (token < 0) {
    result.error =
        "the logits hold a NaN after " + std::to_string(result.tokens.size()) + " tokens";
    result.finished_s = now_s;
    return true;
  }
  if (result.tokens.empty()) result.first_token_s = now_s;
  result.tokens.push_back(token);
  result.finished_s = now_s;
  const auto& eos = engine_.config().eos_ids;
  const bool is_eos =
      live.request.stop_at_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
  return is_eos || static_cast<int>(result.tokens.size()) >= live.request.new_tokens_max;
}

}  // namespace nightshift
