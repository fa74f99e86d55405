// Runs a graph, op by op, over one batch of token rows. Knows graphs, packed weights and the kernel
// table; must not know files, sequences' owners or stages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "schema/result.h"
#include "stages/engine/arena.h"
#include "stages/engine/graph.h"
#include "stages/engine/kv_cache.h"
#include "stages/engine/memory.h"
#include "stages/engine/weights.h"

namespace nightshift {

// One step: rows of one or more sequences, each a run of consecutive positions.
struct Batch {
  std::vector<std::int32_t> ids;        // [m]
  std::vector<std::int32_t> positions;  // [m]
  std::vector<kernels::Segment> segments;
  std::vector<std::int32_t> logit_rows;  // rows whose next-token logits are wanted

  int rows() const { return static_cast<int>(ids.size()); }
  void clear();
};

class Executor;

// Looks at values while a step runs: calibration and comparisons hang in here.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before(const Op&, const Executor&) {}
  virtual void after(const Op&, const Executor&) {}
};

// Where the time of the steps since the last reset went.
struct OpTimes {
  std::vector<double> seconds;  // by op
  std::int64_t steps = 0;
};

class Executor {
 public:
  struct Options {
    kernels::Precision precision = kernels::Precision::bf16;
    StepShape largest;
    bool keep_values = false;  // no value shares memory with another: for Observer::after
  };

  // Packs the weights of every op. `config`, `graph`, `context`, `cache`, `account` must outlive
  // it.
  static Result<std::unique_ptr<Executor>> make(const ModelConfig& config, const Graph& graph,
                                                const Weights& weights,
                                                const kernels::Backend& backend,
                                                kernels::Context& context, KvCache& cache,
                                                MemoryAccount& account, const Options& options);
  ~Executor();

  // Logits [logit_rows, vocab], valid until the next run. The batch must fit the largest shape.
  const float* run(const Batch& batch);

  // For trials, from inside Observer::after and with keep_values: gives op `op` other matrices and
  // returns those it had; runs the ops [first, last] of the step in hand once more.
  std::vector<kernels::PackedMatrix> exchange_matrices(int op,
                                                       std::vector<kernels::PackedMatrix> matrices);
  void rerun(int first, int last);

  void set_observer(Observer* observer) { observer_ = observer; }
  void time_ops(bool on);
  const OpTimes& op_times() const { return times_; }
  std::int64_t launches() const { return launches_; }  // kernel calls of the last run

  // The memory of a value during the step in hand, and its rows.
  const float* value(int id) const;
  const std::int32_t* int_value(int id) const;
  int rows(int id) const;
  const Graph& graph() const { return graph_; }
  std::size_t weight_bytes() const { return weight_bytes_; }

 private:
  // An op with its weights, packed.
  struct BoundOp {
    std::vector<kernels::PackedMatrix> matrices;  // linear: one; grouped: one an expert
    std::vector<float> norm;
    std::vector<float> norm2;  // k norm of qk_norm_rope_append
    std::vector<std::uint16_t> table_bf16;
    std::vector<float> table_f32;
  };

  Executor(const ModelConfig& config, const Graph& graph, const kernels::Backend& backend,
           kernels::Context& context, KvCache& cache, MemoryAccount& account,
           const Options& options);
  Status bind(const Weights& weights);
  Status bind_op(const Op& op, const Weights& weights, BoundOp& bound);
  Status bind_table(const Op& op, const Weights& weights, BoundOp& bound);
  Status bind_gate_up(const Op& op, const Weights& weights, BoundOp& bound);

  void run_op(const Op& op, const BoundOp& bound, const Batch& batch);
  void run_product(const Op& op, const BoundOp& bound);
  void run_attention(const Op& op, const BoundOp& bound, const Batch& batch);
  void run_experts(const Op& op, const BoundOp& bound);
  void run_rows(const Op& op, const BoundOp& bound, const Batch& batch);
  float* f(int id);
  std::int32_t* i(int id);
  int width(int id) const { return graph_.values[static_cast<std::size_t>(id)].width; }

  const ModelConfig& config_;
  const Graph& graph_;
  const kernels::Backend& backend_;
  kernels::Context& context_;
  KvCache& cache_;
  MemoryAccount& account_;
  Options options_;

  std::vector<BoundOp> bound_;
  std::vector<double> inv_freq_;  // RoPE: theta^(-2i/head_dim)
  ArenaPlan plan_;
  Buffer arena_;
  StepShape shape_;               // of the step in hand
  const Batch* batch_ = nullptr;  // the same
  std::size_t weight_bytes_ = 0;
  Observer* observer_ = nullptr;
  bool timing_ = false;
  OpTimes times_;
  std::int64_t launches_ = 0;
};

}  // namespace nightshift
