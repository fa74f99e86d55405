#include "stages/engine/engine.h"

#include <algorithm>
#include <new>

#include "stages/engine/checkpoint.h"
#include "stages/model_io/files.h"

namespace nightshift {

Result<std::unique_ptr<Engine>> Engine::load(const std::string& folder,
                                             const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = options;
  std::string reason;
  engine->backend_ = kernels::choose_backend(reason);
  if (engine->backend_ == nullptr) {
    return Error{ErrorCode::unsupported, reason, "NIGHTSHIFT_ISA", ""};
  }
  engine->pool_ = std::make_unique<kernels::ThreadPool>(kernels::ThreadPool::default_threads());
  engine->context_ = std::make_unique<kernels::Context>(*engine->pool_);
  NS_TRY(engine->open_files(folder));
  try {
    NS_TRY(engine->assemble());
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory,
                 "the model does not fit: " + std::to_string(engine->memory_.now() >> 20) +
                     " MiB were taken when the next allocation failed",
                 folder, "ask for fewer KV tokens, or use a machine with more memory"};
  }
  return engine;
}

Status Engine::open_files(const std::string& folder) {
  NS_TRY_ASSIGN(config_, load_model_config(folder));
  NS_TRY_ASSIGN(WeightFiles files, WeightFiles::open(folder));
  files_ = std::make_unique<WeightFiles>(std::move(files));
  NS_TRY_ASSIGN(meta_, read_checkpoint_meta(folder));
  // A quantized checkpoint has other tensors; what it lacks is named when it is packed.
  if (meta_.linears.empty()) NS_TRY(check_tensors(config_, *files_));
  return {};
}

Status Engine::assemble() {
  const Weights weights(*files_, meta_);
  graph_ = build_graph(config_);
  const FusionPlan plan = options_.apply_fusion ? meta_.fusion : FusionPlan{};
  NS_TRY_ASSIGN(fusion_, apply_fusion(graph_, plan, [&](const std::string& name) {
                  return weights.format_of(name);
                }));
  const bool wide = options_.precision == kernels::Precision::f32 || meta_.kv.format == "f32";
  KvPolicy policy{wide ? kernels::KvFormat::f32 : kernels::KvFormat::bf16, meta_.kv.block_tokens,
                  options_.kv_tokens};
  cache_ = std::make_unique<KvCache>(config_, policy, memory_);
  Executor::Options run;
  run.precision = options_.precision;
  run.keep_values = options_.keep_values;
  run.largest = {options_.step_rows_max, options_.logit_rows_max, narrow(config_.experts),
                 std::max(1, narrow(config_.experts_per_token))};
  NS_TRY_ASSIGN(executor_, Executor::make(config_, graph_, weights, *backend_, *context_, *cache_,
                                          memory_, run));
  files_.reset();
  return {};
}

void Engine::append(Batch& batch, SequenceId sequence, std::span<const std::int32_t> ids,
                    std::size_t logits_from) {
  const int first = batch.rows();
  const int start = cache_->length(sequence);
  for (std::size_t n = 0; n < ids.size(); ++n) {
    batch.ids.push_back(ids[n]);
    batch.positions.push_back(start + static_cast<int>(n));
    if (n >= logits_from) batch.logit_rows.push_back(first + static_cast<int>(n));
  }
  batch.segments.push_back({first, static_cast<int>(ids.size()), start, cache_->blocks(sequence)});
  cache_->set_length(sequence, start + static_cast<int>(ids.size()));
}

}  // namespace nightshift
