#include "stages/night/measure.h"

#include <random>

#include "stages/engine/checkpoint.h"
#include "stages/engine/generation.h"
#include "stages/night/speed.h"

namespace nightshift {

Result<MeasurementRecord*> measure_checkpoint(const StageContext& context, const TextModel& text,
                                              const QualitySpec& spec, MeasureWhat what,
                                              CheckpointMeta& meta) {
  NS_TRY_ASSIGN(const std::string digest, model_digest(context.out, meta));
  context.report.metric("model", 1, "", digest);
  meta.stage = context.order.stage;
  meta.measurements.push_back({context.order.kind, digest, {}});
  Measurement& numbers = meta.measurements.back().numbers;

  if (what.quality) {
    // Let go before speed is measured: its memory must not stand beside the one that is measured.
    NS_TRY_ASSIGN(auto engine, load_for_scoring(context.out));
    NS_TRY_ASSIGN(const QualityResult quality,
                  measure_quality(*engine, text, spec, context.report));
    report_quality(quality, digest, context.report, numbers);
  }
  if (what.speed) {
    NS_TRY_ASSIGN(const ModelConfig config, load_model_config(context.out));
    NS_TRY_ASSIGN(const auto stream, bench_stream(text, spec, config.vocab_size));
    NS_TRY_ASSIGN(const SpeedResult speed,
                  measure_speed(context.out, context.order.bench, stream, context.report));
    report_speed(speed, digest, context.report, numbers);
  }
  NS_TRY_ASSIGN(const std::int64_t bytes, weight_bytes_on_disk(context.out));
  numbers.size_bytes = static_cast<double>(bytes);
  context.report.metric("size_bytes", static_cast<double>(bytes), "bytes", digest);
  return &meta.measurements.back();
}

Result<std::vector<TokenId>> bench_stream(const TextModel& text, const QualitySpec& spec,
                                          std::int64_t vocab_size) {
  std::vector<TokenId> stream;
  for (const auto& [set, path] : spec.heldout) {
    NS_TRY_ASSIGN(const auto part, token_stream(text, path));
    stream.insert(stream.end(), part.begin(), part.end());
  }
  if (!stream.empty()) return stream;
  std::mt19937 random(1);
  for (int n = 0; n < 65536; ++n) {
    stream.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab_size)));
  }
  return stream;
}

namespace {

Result<std::vector<std::vector<TokenId>>> generate(const MatchSide& side,
                                                   std::span<const std::vector<TokenId>> prompts,
                                                   const MatchSize& size) {
  EngineOptions options;
  options.apply_fusion = side.apply_fusion;
  options.logit_rows_max = std::max(1, size.prompts);
  // 64: each sequence takes whole blocks.
  options.kv_tokens =
      static_cast<std::int64_t>(size.prompts) * (size.prompt_tokens + size.new_tokens + 64);
  NS_TRY_ASSIGN(auto engine, Engine::load(side.folder, options));
  GenerationOptions greedy;
  greedy.new_tokens = size.new_tokens;
  return generate_batch(*engine, prompts, greedy);
}

}  // namespace

Result<double> token_match(const MatchSide& a, const MatchSide& b,
                           const std::vector<TokenId>& stream, const MatchSize& size) {
  const auto prompts = cut_prompts(stream, size.prompts, size.prompt_tokens);
  NS_TRY_ASSIGN(const auto left, generate(a, prompts, size));
  NS_TRY_ASSIGN(const auto right, generate(b, prompts, size));
  std::int64_t equal = 0, total = 0;
  for (std::size_t p = 0; p < left.size(); ++p) {
    for (std::size_t t = 0; t < left[p].size(); ++t) {
      equal += left[p][t] == right[p][t] ? 1 : 0;
      ++total;
    }
  }
  return total == 0 ? 1.0 : static_cast<double>(equal) / static_cast<double>(total);
}

}  // namespace nightshift
