// The table of mathematical operations that every backend fills. Knows shapes, element types and
// threads; must not know models, files or stages.
//
// Conventions
//  - Row-major, contiguous, sizes in elements. m = rows (tokens), n = outputs, k = inputs.
//  - Activations between operations are float32. A *product* reads its weight in the format it was
//    packed in and rounds its input to match (see Precision); accumulation is float32 (int32 for
//    int8). Pointers never alias unless said so.
//  - Results do not depend on the number of threads. In Precision::f32 a row's result does not
//    depend on how many other rows are computed with it (same summation order for every m).
//  - Nothing here allocates on the hot path: scratch memory comes from Context.
//  - Sizes are trusted: the caller (stages/) has checked them. NaN in gives NaN out, never a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nightshift::kernels {

class ThreadPool;

// Stored format of a weight matrix.
enum class WeightFormat : std::uint8_t { f32, bf16, int8 };
// What a product with a 16- or 32-bit weight does to its input: f32 keeps it (weights are widened,
// exact), bf16 rounds it to bfloat16 (round to nearest even). int8 weights always take int8 inputs.
enum class Precision : std::uint8_t { f32, bf16 };
// Element type of the KV cache.
enum class KvFormat : std::uint8_t { f32, bf16 };

// How an int8 product quantises its input rows: symmetric, zero point 0, range [-127, 127].
//  clip > 0 and !per_token: one scale clip/127 for all rows (static, from calibration).
//  clip > 0 and per_token:  scale min(amax(row), clip)/127.
//  clip == 0:               scale amax(row)/127 (dynamic per token).
// A row of zeros gives zeros.
struct ActivationQuant {
  float clip = 0.0f;
  bool per_token = true;
};

// One weight matrix [n, k], repacked once for the backend that made it; immovable memory, 64-byte
// aligned. `bytes` is what it occupies (for memory accounting and bandwidth figures).
struct PackedMatrix {
  WeightFormat format = WeightFormat::bf16;
  int n = 0;
  int k = 0;
  std::size_t bytes = 0;
  ActivationQuant activation;              // int8 only
  std::shared_ptr<const void> data;        // backend-private layout
};

// Where a call runs: threads and scratch. One Context per running model, never shared by threads.
struct Context {
  ThreadPool* pool = nullptr;              // never null
  // Returns at least `bytes` of 64-byte aligned scratch, valid until the next kernel call.
  // Slots are independent (a kernel may hold several at once).
  void* scratch(int slot, std::size_t bytes);
  std::size_t scratch_bytes() const;       // total held now

  static constexpr int slots = 8;
  struct Buffer {
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  Buffer buffers[slots];

  explicit Context(ThreadPool& threads) : pool(&threads) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

// One layer's key/value memory: blocks of `block_tokens` positions, head_dim even. Element
// (block, head, t, i) is at
// ((block * kv_heads + head) * block_tokens + t) * head_dim + i in both k and v.
struct KvLayer {
  KvFormat format = KvFormat::bf16;
  void* k = nullptr;
  void* v = nullptr;
  int kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 0;
};

// `rows` consecutive rows of one sequence: row i is at position start + i. Position p lives in
// block blocks[p / block_tokens]. Rows of different sequences lie one after the other in a batch.
struct Segment {
  int first_row = 0;
  int rows = 0;
  int start = 0;
  const std::int32_t* blocks = nullptr;
};

struct SampleParams {
  float temperature = 0.0f;   // 0: greedy (largest logit, lowest id on ties)
  int top_k = 0;              // 0: off
  float top_p = 1.0f;         // 1: off
};

struct Backend {
  const char* name;   // "scalar", "avx2", "avx512"

  // ---- Weights -------------------------------------------------------------------------------
  // From float32 [n, k].
  PackedMatrix (*pack_f32)(const float* w, int n, int k);
  // From bfloat16 bits [n, k].
  PackedMatrix (*pack_bf16)(const std::uint16_t* w, int n, int k);
  // From int8 values [n, k] in [-128, 127] and one float32 scale per output row; w = q * scale.
  PackedMatrix (*pack_int8)(const std::int8_t* q, const float* scale, int n, int k,
                            ActivationQuant activation);

  // ---- Products ------------------------------------------------------------------------------
  // y[m, n] = x[m, k] * w[n, k]^T.
  void (*linear)(Context&, const float* x, int m, const PackedMatrix& w, Precision, float* y);
  // Mixture of experts. Rows offsets[e] .. offsets[e+1] of x belong to expert e (offsets[0] = 0,
  // offsets[experts] = m). y[m, n] as `linear`, each row with its expert's matrix (all [n, k]).
  void (*grouped_linear)(Context&, const float* x, const std::int32_t* offsets, int experts,
                         const PackedMatrix* w, Precision, float* y);
  // As grouped_linear for matrices w[e] = [gate; up] of shape [2n, k] (gate rows first);
  // y[m, n] = silu(x * gate^T) * (x * up^T). One launch, no [m, 2n] intermediate in memory needed.
  void (*grouped_gate_up_silu)(Context&, const float* x, const std::int32_t* offsets, int experts,
                               const PackedMatrix* w, Precision, float* y);

  // ---- Rows ----------------------------------------------------------------------------------
  // y[m, d] = table[ids[i], :]; table is bfloat16 bits or float32 (the other pointer is null).
  void (*embed)(Context&, const std::int32_t* ids, int m, const std::uint16_t* table_bf16,
                const float* table_f32, int d, float* y);
  // y = x / sqrt(mean(x^2) + eps) * weight, row by row. y may be x.
  void (*rms_norm)(Context&, const float* x, int m, int d, const float* weight, float eps,
                   float* y);
  // residual += x, then y = rms_norm(residual). The sum rounds exactly as `add` does.
  void (*add_rms_norm)(Context&, float* residual, const float* x, int m, int d, const float* weight,
                       float eps, float* y);
  void (*add)(Context&, float* y, const float* x, std::size_t count);           // y += x
  void (*silu)(Context&, const float* x, std::size_t count, float* y);          // y may be x
  void (*mul)(Context&, float* y, const float* x, std::size_t count);           // y *= x

  // ---- Attention -----------------------------------------------------------------------------
  // Rotates pairs (i, i + head_dim/2) of each head of x[m, heads, head_dim] in place ("NeoX"
  // convention): angle positions[row] * inv_freq[i], computed in float64 and rounded once.
  void (*rope)(Context&, float* x, int m, int heads, int head_dim, const std::int32_t* positions,
               const double* inv_freq);
  // Writes k and v [m, kv_heads, head_dim] of the segments' rows into the cache.
  void (*kv_append)(Context&, const float* k, const float* v, const Segment* segments, int count,
                    const KvLayer& cache);
  // Fused: per-head RMSNorm of q and k (weights of head_dim; null: none), rope on both, append k
  // and v. qkv[m, (heads + 2 kv_heads) * head_dim]; q is written rotated to q[m, heads, head_dim].
  void (*qk_norm_rope_append)(Context&, const float* qkv, const Segment* segments, int count,
                              int heads, const float* q_norm, const float* k_norm, float eps,
                              const double* inv_freq, const KvLayer& cache, float* q);
  // Causal attention of q[m, heads, head_dim] over the cache (which already holds these rows):
  // row at position p sees positions 0..p. Head h reads kv head h / (heads / kv_heads). Softmax in
  // float32, scale 1/sqrt(head_dim). y[m, heads, head_dim].
  void (*attention)(Context&, const float* q, const Segment* segments, int count, int heads,
                    const KvLayer& cache, float* y);

  // ---- Mixture of experts --------------------------------------------------------------------
  // Softmax over logits[m, experts], then the top_k largest (lowest id first on ties), in falling
  // order; normalised to sum 1 when `normalise`. ids and weights are [m, top_k].
  void (*router_top_k)(Context&, const float* logits, int m, int experts, int top_k, bool normalise,
                       std::int32_t* ids, float* weights);
  // Sorts the m*top_k (row, choice) pairs by expert, stable. offsets[experts+1];
  // source[i] = row*top_k + choice of sorted slot i.
  void (*expert_sort)(Context&, const std::int32_t* ids, int m, int top_k, int experts,
                      std::int32_t* offsets, std::int32_t* source);
  // y[i, :] = x[source[i] / top_k, :] for i < m*top_k.
  void (*expert_gather)(Context&, const float* x, const std::int32_t* source, int m, int top_k,
                        int d, float* y);
  // y[row, :] = sum over its choices, in choice order, of weights[row, c] * x[slot of (row, c), :].
  void (*expert_combine)(Context&, const float* x, const std::int32_t* source, const float* weights,
                         int m, int top_k, int d, float* y);

  // ---- Heads ---------------------------------------------------------------------------------
  // ids[i] drawn from logits[i, v] under params[i]; uniform[i] in [0, 1) decides. Rows with a NaN
  // give -1.
  void (*sample)(Context&, const float* logits, int m, int v, const SampleParams* params,
                 const float* uniform, std::int32_t* ids);
  // out[i] = log softmax(logits[i, :])[targets[i]], float64 accumulation.
  void (*log_likelihood)(Context&, const float* logits, int m, int v, const std::int32_t* targets,
                         double* out);

  // ---- Calibration ---------------------------------------------------------------------------
  // channel_max[j] = max(channel_max[j], max over rows |x[i, j]|). False when x holds NaN or Inf.
  bool (*channel_abs_max)(Context&, const float* x, int m, int d, float* channel_max);
  // Adds |x| of `count` values to `counts` of `bins` bins of equal width; values at or above
  // bins * width go to the last bin.
  void (*abs_histogram)(Context&, const float* x, std::size_t count, float width, int bins,
                        std::uint64_t* counts);
};

// The naive reference of every operation: always built, the meaning of the others.
const Backend& scalar_backend();
// The fastest backend that this machine runs; NIGHTSHIFT_ISA=scalar|avx2|avx512 forces one.
// A forced name that is unknown or that this CPU lacks: null and `reason` says what it can do.
const Backend* choose_backend(std::string& reason);
// All backends that this machine can run, scalar first (for tests and benches).
std::vector<const Backend*> usable_backends();

}  // namespace nightshift::kernels
