#include "stages/engine/executor.h"

#include <chrono>
#include <cmath>
#include <cstring>

namespace nightshift {

void Batch::clear() {
  ids.clear();
  positions.clear();
  segments.clear();
  logit_rows.clear();
}

Executor::Executor(const ModelConfig& config, const Graph& graph, const kernels::Backend& backend,
                   kernels::Context& context, KvCache& cache, MemoryAccount& account,
                   const Options& options)
    : config_(config),
      graph_(graph),
      backend_(backend),
      context_(context),
      cache_(cache),
      account_(account),
      options_(options) {
  for (int j = 0; j < narrow(config.head_dim) / 2; ++j) {
    inv_freq_.push_back(
        std::pow(config.rope_theta, -2.0 * j / static_cast<double>(config.head_dim)));
  }
  plan_ = plan_arena(graph, options.largest, options.keep_values);
  arena_ = Buffer(account, MemoryUse::activations, plan_.bytes);
  // Touched once here, so that the first step does not pay for page faults.
  if (plan_.bytes > 0) std::memset(arena_.data(), 0, plan_.bytes);
  times_.seconds.assign(graph.ops.size(), 0.0);
}

Executor::~Executor() {
  account_.give_back(MemoryUse::weights, weight_bytes_);
}

Result<std::unique_ptr<Executor>> Executor::make(const ModelConfig& config, const Graph& graph,
                                                 const Weights& weights,
                                                 const kernels::Backend& backend,
                                                 kernels::Context& context, KvCache& cache,
                                                 MemoryAccount& account, const Options& options) {
  std::unique_ptr<Executor> executor(
      new Executor(config, graph, backend, context, cache, account, options));
  NS_TRY(executor->bind(weights));
  return executor;
}

Status Executor::bind(const Weights& weights) {
  bound_.resize(graph_.ops.size());
  for (std::size_t n = 0; n < graph_.ops.size(); ++n) {
    BoundOp& bound = bound_[n];
    NS_TRY(bind_op(graph_.ops[n], weights, bound));
    std::size_t bytes = (bound.norm.size() + bound.norm2.size() + bound.table_f32.size()) * 4 +
                        bound.table_bf16.size() * 2;
    for (const kernels::PackedMatrix& matrix : bound.matrices) bytes += matrix.bytes;
    account_.take(MemoryUse::weights, bytes);
    weight_bytes_ += bytes;
  }
  return {};
}

Status Executor::bind_op(const Op& op, const Weights& weights, BoundOp& bound) {
  switch (op.kind) {
    case OpKind::linear: {
      NS_TRY_ASSIGN(auto packed, weights.pack(op.weights, backend_));
      bound.matrices.push_back(std::move(packed));
      return {};
    }
    case OpKind::grouped_linear:
      for (const std::string& name : op.weights) {
        NS_TRY_ASSIGN(auto packed, weights.pack({name}, backend_));
        bound.matrices.push_back(std::move(packed));
      }
      return {};
    case OpKind::gate_up_silu: return bind_gate_up(op, weights, bound);
    case OpKind::rms_norm:
    case OpKind::head_norm:
    case OpKind::add_rms_norm: {
      NS_TRY_ASSIGN(bound.norm, weights.vector(op.weights[0]));
      return {};
    }
    case OpKind::qk_norm_rope_append: {
      if (op.weights.empty()) return {};
      NS_TRY_ASSIGN(bound.norm, weights.vector(op.weights[0]));
      NS_TRY_ASSIGN(bound.norm2, weights.vector(op.weights[1]));
      return {};
    }
    case OpKind::embed: return bind_table(op, weights, bound);
    default: return {};
  }
}

// Kept as stored where the kernel reads it so; float16 is widened.
Status Executor::bind_table(const Op& op, const Weights& weights, BoundOp& bound) {
  NS_TRY_ASSIGN(const TensorView table, weights.table(op.weights[0]));
  if (table.dtype == DType::bf16) {
    bound.table_bf16.resize(table.elements());
    std::memcpy(bound.table_bf16.data(), table.data, table.bytes);
    return {};
  }
  NS_TRY_ASSIGN(MatrixF32 matrix, weights.matrix(op.weights[0]));
  bound.table_f32 = std::move(matrix.values);
  return {};
}

// Weights come as all gates, then all ups; each expert's pair is packed as one matrix.
Status Executor::bind_gate_up(const Op& op, const Weights& weights, BoundOp& bound) {
  const std::size_t experts = op.weights.size() / 2;
  for (std::size_t e = 0; e < experts; ++e) {
    NS_TRY_ASSIGN(auto packed, weights.pack({op.weights[e], op.weights[experts + e]}, backend_));
    bound.matrices.push_back(std::move(packed));
  }
  return {};
}

const float* Executor::run(const Batch& batch) {
  shape_ = options_.largest;
  shape_.rows = batch.rows();
  shape_.logit_rows = static_cast<int>(batch.logit_rows.size());
  batch_ = &batch;
  launches_ = 0;
  using Clock = std::chrono::steady_clock;
  for (std::size_t n = 0; n < graph_.ops.size(); ++n) {
    const Op& op = graph_.ops[n];
    if (observer_ != nullptr) observer_->before(op, *this);
    const auto begin = timing_ ? Clock::now() : Clock::time_point{};
    run_op(op, bound_[n], batch);
    ++launches_;
    if (timing_) {
      times_.seconds[n] += std::chrono::duration<double>(Clock::now() - begin).count();
    }
    if (observer_ != nullptr) observer_->after(op, *this);
    if (shape_.logit_rows == 0 && op.kind == OpKind::select_rows) break;  // nobody wants logits
  }
  ++times_.steps;
  account_.set(MemoryUse::scratch, context_.scratch_bytes());
  return graph_.logits >= 0 ? value(graph_.logits) : nullptr;
}

std::vector<kernels::PackedMatrix> Executor::exchange_matrices(
    int op, std::vector<kernels::PackedMatrix> matrices) {
  bound_[static_cast<std::size_t>(op)].matrices.swap(matrices);
  return matrices;
}

void Executor::rerun(int first, int last) {
  for (auto n = static_cast<std::size_t>(first); n <= static_cast<std::size_t>(last); ++n) {
    run_op(graph_.ops[n], bound_[n], *batch_);
  }
}

void Executor::time_ops(bool on) {
  timing_ = on;
  times_.seconds.assign(graph_.ops.size(), 0.0);
  times_.steps = 0;
}

float* Executor::f(int id) {
  return reinterpret_cast<float*>(arena_.data() + plan_.offsets[static_cast<std::size_t>(id)]);
}

std::int32_t* Executor::i(int id) {
  return reinterpret_cast<std::int32_t*>(arena_.data() +
                                         plan_.offsets[static_cast<std::size_t>(id)]);
}

const float* Executor::value(int id) const {
  return const_cast<Executor*>(this)->f(id);
}
const std::int32_t* Executor::int_value(int id) const {
  return const_cast<Executor*>(this)->i(id);
}

int Executor::rows(int id) const {
  return rows_of(graph_.values[static_cast<std::size_t>(id)], shape_);
}

void Executor::run_op(const Op& op, const BoundOp& bound, const Batch& batch) {
  switch (op.kind) {
    case OpKind::linear:
    case OpKind::grouped_linear:
    case OpKind::gate_up_silu: return run_product(op, bound);
    case OpKind::head_norm:
    case OpKind::rope:
    case OpKind::kv_append:
    case OpKind::qk_norm_rope_append:
    case OpKind::attention: return run_attention(op, bound, batch);
    case OpKind::router_top_k:
    case OpKind::expert_sort:
    case OpKind::expert_gather:
    case OpKind::expert_combine: return run_experts(op, bound);
    default: return run_rows(op, bound, batch);
  }
}

void Executor::run_product(const Op& op, const BoundOp& bound) {
  const float* x = f(op.in[0]);
  float* y = f(op.out[0]);
  const int m = rows(op.in[0]);
  if (m == 0) return;
  const int experts = static_cast<int>(bound.matrices.size());
  // A dense layer is one expert that gets every row.
  const std::int32_t all_rows[2] = {0, m};
  const std::int32_t* offsets = op.in.size() > 1 ? i(op.in[1]) : all_rows;
  if (op.kind == OpKind::linear) {
    backend_.linear(context_, x, m, bound.matrices[0], options_.precision, y);
  } else if (op.kind == OpKind::grouped_linear) {
    backend_.grouped_linear(context_, x, offsets, experts, bound.matrices.data(),
                            options_.precision, y);
  } else {
    backend_.grouped_gate_up_silu(context_, x, offsets, experts, bound.matrices.data(),
                                  options_.precision, y);
  }
}

void Executor::run_attention(const Op& op, const BoundOp& bound, const Batch& batch) {
  const float eps = static_cast<float>(config_.rms_norm_eps);
  const int m = shape_.rows;
  const int segments = static_cast<int>(batch.segments.size());
  switch (op.kind) {
    case OpKind::head_norm:
      backend_.rms_norm(context_, f(op.in[0]), m * op.heads, narrow(config_.head_dim),
                        bound.norm.data(), eps, f(op.out[0]));
      return;
    case OpKind::rope:
      backend_.rope(context_, f(op.in[0]), m, op.heads, narrow(config_.head_dim),
                    batch.positions.data(), inv_freq_.data());
      return;
    case OpKind::kv_append:
      backend_.kv_append(context_, f(op.in[0]), f(op.in[1]), batch.segments.data(), segments,
                         cache_.layer(op.layer));
      return;
    case OpKind::qk_norm_rope_append:
      backend_.qk_norm_rope_append(context_, f(op.in[0]), batch.segments.data(), segments,
                                   narrow(config_.heads),
                                   bound.norm.empty() ? nullptr : bound.norm.data(),
                                   bound.norm2.empty() ? nullptr : bound.norm2.data(), eps,
                                   inv_freq_.data(), cache_.layer(op.layer), f(op.out[0]));
      return;
    default:
      backend_.attention(context_, f(op.in[0]), batch.segments.data(), segments,
                         narrow(config_.heads), cache_.layer(op.layer), f(op.out[0]));
      return;
  }
}

void Executor::run_experts(const Op& op, const BoundOp&) {
  const int m = shape_.rows;
  const int top_k = narrow(config_.experts_per_token);
  switch (op.kind) {
    case OpKind::router_top_k:
      backend_.router_top_k(context_, f(op.in[0]), m, narrow(config_.experts), top_k,
                            config_.norm_topk_prob, i(op.out[0]), f(op.out[1]));
      return;
    case OpKind::expert_sort:
      backend_.expert_sort(context_, i(op.in[0]), m, top_k, narrow(config_.experts), i(op.out[0]),
                           i(op.out[1]));
      return;
    case OpKind::expert_gather:
      backend_.expert_gather(context_, f(op.in[0]), i(op.in[1]), m, top_k, width(op.in[0]),
                             f(op.out[0]));
      return;
    default:
      backend_.expert_combine(context_, f(op.in[0]), i(op.in[1]), f(op.in[2]), m, top_k,
                              width(op.in[0]), f(op.out[0]));
      return;
  }
}

void Executor::run_rows(const Op& op, const BoundOp& bound, const Batch& batch) {
  const float eps = static_cast<float>(config_.rms_norm_eps);
  const int m = op.in.empty() ? shape_.rows : rows(op.in[0]);
  const auto count = [&] {
    return static_cast<std::size_t>(m) * static_cast<std::size_t>(width(op.in[0]));
  };
  switch (op.kind) {
    case OpKind::embed:
      backend_.embed(context_, batch.ids.data(), m,
                     bound.table_bf16.empty() ? nullptr : bound.table_bf16.data(),
                     bound.table_f32.empty() ? nullptr : bound.table_f32.data(), width(op.out[0]),
                     f(op.out[0]));
      return;
    case OpKind::rms_norm:
      backend_.rms_norm(context_, f(op.in[0]), m, width(op.in[0]), bound.norm.data(), eps,
                        f(op.out[0]));
      return;
    case OpKind::add_rms_norm:
      backend_.add_rms_norm(context_, f(op.in[0]), f(op.in[1]), m, width(op.in[0]),
                            bound.norm.data(), eps, f(op.out[1]));
      return;
    case OpKind::add: backend_.add(context_, f(op.in[0]), f(op.in[1]), count()); return;
    case OpKind::mul: backend_.mul(context_, f(op.in[0]), f(op.in[1]), count()); return;
    case OpKind::silu: backend_.silu(context_, f(op.in[0]), count(), f(op.out[0])); return;
    case OpKind::split_qkv: {
      const std::size_t row = static_cast<std::size_t>(width(op.in[0]));
      std::size_t column = 0;
      for (int out : op.out) {
        const std::size_t part = static_cast<std::size_t>(width(out));
        for (std::size_t r = 0; r < static_cast<std::size_t>(m); ++r) {
          std::memcpy(f(out) + r * part, f(op.in[0]) + r * row + column, part * sizeof(float));
        }
        column += part;
      }
      return;
    }
    case OpKind::select_rows: {
      const std::size_t row = static_cast<std::size_t>(width(op.in[0]));
      for (std::size_t r = 0; r < batch.logit_rows.size(); ++r) {
        std::memcpy(f(op.out[0]) + r * row,
                    f(op.in[0]) + static_cast<std::size_t>(batch.logit_rows[r]) * row,
                    row * sizeof(float));
      }
      return;
    }
    default: return;
  }
}

}  // namespace nightshift
