// Engine bench on K3-nano: prefill, decode and the mixed batch, op by op and fused; the time of
// each op kind. Run by ops/bench.sh engine [MODEL_FOLDER]. Ratios are within this one run.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stages/engine/checkpoint.h"
#include "stages/engine/engine.h"
#include "stages/engine/generation.h"

using namespace nightshift;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int repeats = 5;

struct Shape {
  const char* name;
  int batch;
  int input;
  int output;
};
constexpr Shape shapes[] = {
    {"prefill_512", 1, 512, 1}, {"decode_b1", 1, 16, 128}, {"batch32", 32, 512, 128}};

std::vector<std::vector<std::int32_t>> prompts_of(const Shape& shape, std::int64_t vocab) {
  std::vector<std::vector<std::int32_t>> prompts;
  std::uint32_t state = 1;
  for (int b = 0; b < shape.batch; ++b) {
    std::vector<std::int32_t> prompt;
    for (int t = 0; t < shape.input; ++t) {
      state = state * 1664525u + 1013904223u;
      prompt.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocab)));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::unique_ptr<Engine> load(const std::string& folder, const Shape& shape, bool fused) {
  EngineOptions options;
  options.apply_fusion = fused;
  options.logit_rows_max = shape.batch;
  options.kv_tokens = static_cast<std::int64_t>(shape.batch) * (shape.input + shape.output + 64);
  auto engine = Engine::load(folder, options);
  if (engine.ok()) return std::move(*engine);
  std::fprintf(stderr, "engine_bench: error: %s\n", engine.error().line().c_str());
  std::exit(1);
}

void emit(const std::string& name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
}

// Median tokens a second (all tokens, prompts included).
double measure(Engine& engine, const Shape& shape) {
  const auto prompts = prompts_of(shape, engine.config().vocab_size);
  GenerationOptions options;
  options.new_tokens = shape.output;
  std::vector<double> rates;
  for (int run = 0; run <= repeats; ++run) {
    const auto begin = Clock::now();
    if (!generate_batch(engine, prompts, options).ok()) std::exit(1);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (run > 0) rates.push_back(shape.batch * (shape.input + shape.output) / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

void print_ops(Engine& engine, const Shape& shape) {
  engine.executor().time_ops(true);
  GenerationOptions options;
  options.new_tokens = shape.output;
  if (!generate_batch(engine, prompts_of(shape, engine.config().vocab_size), options).ok()) return;
  const OpTimes& times = engine.executor().op_times();
  std::map<std::string, double> by_kind;
  double total = 0;
  for (std::size_t n = 0; n < times.seconds.size(); ++n) {
    by_kind[to_string(engine.graph().ops[n].kind)] += times.seconds[n];
    total += times.seconds[n];
  }
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [kind, seconds] : by_kind) rows.emplace_back(seconds, kind);
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [seconds, kind] : rows) {
    std::fprintf(stderr, "    %-22s %8.2f ms  %5.1f %%\n", kind.c_str(), seconds * 1e3,
                 100 * seconds / total);
    emit(std::string(shape.name) + "_share_" + kind, seconds / total, "fraction");
  }
  engine.executor().time_ops(false);
}

// The model with every fusion rule in its plan, beside the original.
std::string with_fusion(const std::string& model) {
  const std::string folder = (std::filesystem::temp_directory_path() /
                              ("nightshift-engine-bench-" + std::to_string(::getpid())))
                                 .string();
  std::filesystem::create_directories(folder);
  auto meta = read_checkpoint_meta(model);
  if (!meta.ok() || !carry_files(model, folder, Carry::copy).ok()) std::exit(1);
  meta->fusion.rules = fusion_rules();
  if (!write_checkpoint_meta(folder, *meta).ok()) std::exit(1);
  return folder;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "jobs/models/k3-nano";
  const std::string folder = with_fusion(model);
  for (const Shape& shape : shapes) {
    double rate[2];
    for (const bool fused : {false, true}) {
      auto engine = load(folder, shape, fused);
      rate[fused] = measure(*engine, shape);
      std::fprintf(stderr, "%-12s %-8s %-7s %10.0f tok/s  %zu ops\n", shape.name,
                   fused ? "fused" : "unfused", engine->backend_name(), rate[fused],
                   engine->graph().ops.size());
      emit(std::string(shape.name) + (fused ? "_fused" : "_unfused"), rate[fused], "tok/s");
      print_ops(*engine, shape);
    }
    emit(std::string(shape.name) + "_fused_ratio", rate[1] / rate[0], "ratio");
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return 0;
}
