// A loaded model, ready to run: weights, graph, cache and executor of one checkpoint. Knows how
// they belong together; must not know what is measured or changed with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"
#include "stages/engine/checkpoint_meta.h"
#include "stages/engine/executor.h"
#include "stages/engine/kv_cache.h"
#include "stages/engine/memory.h"
#include "stages/model_io/model_config.h"

namespace nightshift {

struct EngineOptions {
  kernels::Precision precision = kernels::Precision::bf16;  // f32: exact weights and activations
  int step_rows_max = 1024;       // longest step; longer prompts are prefilled in pieces
  int logit_rows_max = 64;        // most rows of one step whose logits are asked for
  std::int64_t kv_tokens = 4096;  // over all sequences
  bool apply_fusion = true;       // false: run the checkpoint op by op whatever its plan says
  bool keep_values = false;       // see Executor::Options
};

class Engine {
 public:
  // Loads a Hugging Face directory or a Nightshift checkpoint. In Precision::f32 the KV cache is
  // float32 too.
  static Result<std::unique_ptr<Engine>> load(const std::string& folder,
                                              const EngineOptions& options);

  const ModelConfig& config() const { return config_; }
  const CheckpointMeta& meta() const { return meta_; }
  const Graph& graph() const { return graph_; }
  const FusionReport& fusion() const { return fusion_; }
  const EngineOptions& options() const { return options_; }
  const char* backend_name() const { return backend_->name; }
  const kernels::Backend& backend() const { return *backend_; }
  kernels::Context& context() { return *context_; }
  Executor& executor() { return *executor_; }
  KvCache& cache() { return *cache_; }
  MemoryAccount& memory() { return memory_; }

  // ---- Building and running a step -----------------------------------------------------------
  // Appends `ids` at the end of a sequence. `logits_from`: logits are wanted for the rows
  // ids[logits_from ..]; ids.size() for none. The caller keeps within the limits of the options.
  void append(Batch& batch, SequenceId sequence, std::span<const std::int32_t> ids,
              std::size_t logits_from);
  // Runs the batch. Logits [batch.logit_rows, vocab], valid until the next step.
  const float* run(const Batch& batch) { return executor_->run(batch); }

 private:
  Engine() = default;
  Status open_files(const std::string& folder);
  Status assemble();

  EngineOptions options_;
  const kernels::Backend* backend_ = nullptr;
  std::unique_ptr<kernels::ThreadPool> pool_;
  std::unique_ptr<kernels::Context> context_;
  MemoryAccount memory_;
  ModelConfig config_;
  CheckpointMeta meta_;
  std::unique_ptr<WeightFiles> files_;  // let go after packing
  Graph graph_;
  FusionReport fusion_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace nightshift
