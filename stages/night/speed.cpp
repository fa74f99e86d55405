#include "stages/night/speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>

#include "stages/engine/checkpoint.h"
#include "stages/engine/engine.h"
#include "stages/engine/generation.h"
#include "stages/night/text_model.h"

namespace nightshift {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Result<std::unique_ptr<Engine>> load_for(const std::string& checkpoint, const BenchSpec& bench,
                                         int batch) {
  EngineOptions options;
  options.logit_rows_max = std::max(batch, 1);
  options.step_rows_max = std::max(options.step_rows_max, batch);
  NS_TRY_ASSIGN(const CheckpointMeta meta, read_checkpoint_meta(checkpoint));
  const std::int64_t block = meta.kv.block_tokens;
  const std::int64_t tokens = bench.input_tokens + bench.output_tokens;
  options.kv_tokens = batch * ((tokens + block - 1) / block * block);
  return Engine::load(checkpoint, options);
}

// Share of each part in the time of one run, sampling included.
std::map<std::string, double> time_shares(Engine& engine, double total_s) {
  std::map<std::string, double> shares;
  const OpTimes& times = engine.executor().op_times();
  double in_ops = 0;
  for (std::size_t n = 0; n < times.seconds.size(); ++n) {
    shares[part_of(engine.graph().ops[n])] += times.seconds[n] / total_s;
    in_ops += times.seconds[n];
  }
  shares["sampling"] = std::max(0.0, total_s - in_ops) / total_s;  // and what lies between the ops
  return shares;
}

struct Timing {
  double first_s = 0;  // until every sequence has its first token
  double total_s = 0;

  double per_token_ms(int tokens) const { return (total_s - first_s) * 1e3 / (tokens - 1); }
};

Result<Timing> time_run(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                        int new_tokens) {
  GenerationOptions options;
  options.new_tokens = new_tokens;
  Timing timing;
  const auto begin = Clock::now();
  NS_TRY(generate_batch(engine, prompts, options, [&] { timing.first_s = seconds_since(begin); }));
  timing.total_s = seconds_since(begin);
  return timing;
}

Status measure_throughput(Engine& engine, const BenchSpec& bench,
                          const std::vector<std::vector<TokenId>>& prompts, StageReporter& report,
                          SpeedResult& result) {
  const double tokens = static_cast<double>(bench.batch) * bench.output_tokens;
  std::vector<double> rates;
  const int runs = bench.warmup + bench.repeats;
  for (int run = 0; run < runs; ++run) {
    if (run == bench.warmup) engine.memory().reset_peak();
    NS_TRY_ASSIGN(const Timing timing, time_run(engine, prompts, bench.output_tokens));
    const double rate = tokens / timing.total_s;
    if (run >= bench.warmup) rates.push_back(rate);
    report.progress(run + 1, runs, "runs", rate, "tok/s");
  }
  result.throughput_tok_s = spread_of(rates);
  result.peak_memory_bytes = static_cast<double>(engine.memory().peak());
  for (MemoryUse use :
       {MemoryUse::weights, MemoryUse::kv_cache, MemoryUse::activations, MemoryUse::scratch}) {
    result.memory_bytes[to_string(use)] = static_cast<double>(engine.memory().now(use));
  }
  result.ops = static_cast<double>(engine.graph().ops.size()) + 1;
  result.launches = static_cast<double>(engine.executor().launches()) + 1;

  engine.executor().time_ops(true);
  NS_TRY_ASSIGN(const Timing timing, time_run(engine, prompts, bench.output_tokens));
  result.time_share = time_shares(engine, timing.total_s);
  engine.executor().time_ops(false);
  return {};
}

// At least two tokens, so that there is a time per further token.
int latency_tokens(const BenchSpec& bench) {
  return std::max(2, bench.output_tokens);
}

Status measure_latency(Engine& engine, const BenchSpec& bench, const std::vector<TokenId>& prompt,
                       StageReporter& report, SpeedResult& result) {
  std::vector<double> first_ms, per_token_ms;
  const int runs = bench.warmup + bench.repeats;
  for (int run = 0; run < runs; ++run) {
    NS_TRY_ASSIGN(const Timing timing, time_run(engine, {&prompt, 1}, latency_tokens(bench)));
    report.progress(run + 1, runs, "runs");
    if (run < bench.warmup) continue;
    first_ms.push_back(timing.first_s * 1e3);
    per_token_ms.push_back(timing.per_token_ms(latency_tokens(bench)));
  }
  result.ttft_ms = spread_of(first_ms);
  result.tpot_ms = spread_of(per_token_ms);
  return {};
}

// The figures of one side of a comparison, run by run.
struct Side {
  std::unique_ptr<Engine> engine;
  std::vector<double> rates, first_ms, per_token_ms;

  Status run(const BenchSpec& bench, const std::vector<std::vector<TokenId>>& prompts, bool keep) {
    NS_TRY_ASSIGN(const Timing batch, time_run(*engine, prompts, bench.output_tokens));
    NS_TRY_ASSIGN(const Timing one,
                  time_run(*engine, {&prompts.front(), 1}, latency_tokens(bench)));
    if (!keep) return {};
    rates.push_back(static_cast<double>(bench.batch) * bench.output_tokens / batch.total_s);
    first_ms.push_back(one.first_s * 1e3);
    per_token_ms.push_back(one.per_token_ms(latency_tokens(bench)));
    return {};
  }
};

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

Result<SpeedResult> measure_speed(const std::string& checkpoint, const BenchSpec& bench,
                                  const std::vector<TokenId>& stream, StageReporter& report) {
  SpeedResult result;
  const auto prompts = cut_prompts(stream, bench.batch, bench.input_tokens);
  {
    report.phase("first token (D), one request");
    NS_TRY_ASSIGN(auto engine, load_for(checkpoint, bench, 1));
    NS_TRY(measure_latency(*engine, bench, prompts.front(), report, result));
  }
  report.phase("throughput (P), batch " + std::to_string(bench.batch));
  NS_TRY_ASSIGN(auto engine, load_for(checkpoint, bench, bench.batch));
  NS_TRY(measure_throughput(*engine, bench, prompts, report, result));
  return result;
}

Result<std::array<SpeedFigures, 2>> compare_speed(const std::array<std::string, 2>& checkpoints,
                                                  const BenchSpec& bench,
                                                  const std::vector<TokenId>& stream,
                                                  StageReporter& report) {
  const auto prompts = cut_prompts(stream, bench.batch, bench.input_tokens);
  std::array<Side, 2> sides;
  for (std::size_t n = 0; n < 2; ++n) {
    NS_TRY_ASSIGN(sides[n].engine, load_for(checkpoints[n], bench, bench.batch));
  }
  const int runs = bench.warmup + bench.repeats;
  for (int run = 0; run < runs; ++run) {
    for (Side& side : sides) NS_TRY(side.run(bench, prompts, run >= bench.warmup));
    report.progress(run + 1, runs, "runs");
  }
  std::array<SpeedFigures, 2> figures;
  for (std::size_t n = 0; n < 2; ++n) {
    figures[n] = {spread_of(sides[n].rates), spread_of(sides[n].first_ms),
                  spread_of(sides[n].per_token_ms)};
  }
  return figures;
}

void report_speed(const SpeedResult& speed, const std::string& digest, StageReporter& report,
                  Measurement& numbers) {
  numbers.throughput_tok_s = speed.throughput_tok_s.median;
  numbers.ttft_ms = speed.ttft_ms.median;
  numbers.tpot_ms = speed.tpot_ms.median;
  numbers.peak_memory_bytes = speed.peak_memory_bytes;
  numbers.ops = speed.ops;
  numbers.launches = speed.launches;
  const auto spread = [&](const std::string& name, const Spread& s, const std::string& unit) {
    report.metric(name, s.median, unit, digest);
    report.metric(name + "_least", s.least, unit, digest);
    report.metric(name + "_greatest", s.greatest, unit, digest);
  };
  spread("throughput_tok_s", speed.throughput_tok_s, "tok/s");
  spread("ttft_ms", speed.ttft_ms, "ms");
  spread("tpot_ms", speed.tpot_ms, "ms");
  report.metric("peak_memory_bytes", speed.peak_memory_bytes, "bytes", digest);
  report.metric("ops", speed.ops, "ops", digest);
  report.metric("launches", speed.launches, "launches", digest);
  for (const auto& [use, bytes] : speed.memory_bytes) {
    report.metric("memory_bytes", bytes, "bytes", digest, use);
  }
  for (const auto& [part, share] : speed.time_share) {
    report.metric("share", share, "fraction", digest, part);
  }
}

}  // namespace nightshift
