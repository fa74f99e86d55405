// Measures the kernels: the machine's own peaks first, then products as shares of them, then the
// unfused operations of a small mixture-of-experts model in the order in which a model runs them.
// A table for people on stderr; one JSON object a line on stdout. Every figure is the best of
// several runs, since other programs share the cores.
//
//   kernels_bench [seconds for each figure, default 0.2] [cpu]   NIGHTSHIFT_ISA, NIGHTSHIFT_THREADS
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/memory.h"
#include "kernels/thread_pool.h"
#include "tests/kernels/machine_peaks.h"

namespace nightshift::kernels {
namespace {

// Wall time, or the time that this process was on a CPU: on a crowded machine only the latter, with
// one thread, says something about the kernels.
bool cpu_time = false;

double now_s() {
  timespec now{};
  clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

using test::chains;
using test::peak_rounds;
using test::peak_sink;

double budget_s = 0.2;

// Seconds of the fastest of many runs; of CPU time the mean, since its ticks are coarse.
double best_of(const std::function<void()>& body) {
  body();
  double best = 1e30;
  const double start = now_s();
  int runs = 0;
  while (runs < 3 || now_s() - start < budget_s) {
    const double begin = now_s();
    body();
    best = std::min(best, now_s() - begin);
    ++runs;
  }
  return cpu_time ? (now_s() - start) / runs : best;
}

void report(const std::string& name, double value, const std::string& unit) {
  std::fprintf(stderr, "%-52s %12.3f %s\n", name.c_str(), value, unit.c_str());
  std::printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name.c_str(), value,
              unit.c_str());
}

// ---- The machine ------------------------------------------------------------------------------

// Multiply-accumulates per second of one thread, by weight format of the product.
struct Peaks {
  double f32 = 0.0;
  double bf16 = 0.0;
  double int8 = 0.0;
  double read_gbps = 0.0;   // all threads, from memory
};

double read_bandwidth(ThreadPool& pool) {
  const std::size_t count = std::size_t{32} << 20;   // 256 MiB of 8-byte words
  const std::vector<std::uint64_t> data(count, 1);
  const int pieces = 64;
  const double seconds = best_of([&] {
    pool.parallel_for(pieces, 1, [&](int begin, int end) {
      std::uint64_t sum[8] = {};
      for (std::size_t i = count / pieces * begin; i < count / pieces * end; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += data[i + j];
      }
      for (std::uint64_t s : sum) peak_sink = static_cast<float>(s);
    });
  });
  return static_cast<double>(count) * sizeof(std::uint64_t) / seconds * 1e-9;
}

Peaks measure_peaks(const std::string& isa, ThreadPool& pool) {
  Peaks peaks;
  const double wide = 16.0 * chains * peak_rounds;
  if (isa == "avx512") {
    peaks.f32 = wide / best_of(test::fma_avx512);
    peaks.bf16 = 2 * wide / best_of(test::dot_bf16_avx512);
    peaks.int8 = 4 * wide / best_of(test::dot_int8_avx512);
  } else {
    peaks.f32 = wide / 2 / best_of(test::fma_avx2);
    peaks.bf16 = peaks.f32;
    peaks.int8 = 2 * peaks.f32;
  }
  peaks.read_gbps = read_bandwidth(pool);
  report("peak/f32", peaks.f32 * 2e-9, "GFLOP/s a thread");
  report("peak/bf16", peaks.bf16 * 2e-9, "GFLOP/s a thread");
  report("peak/int8", peaks.int8 * 2e-9, "GOP/s a thread");
  report("peak/read", peaks.read_gbps, "GB/s");
  return peaks;
}

void bench_pool(ThreadPool& pool) {
  const int calls = 200;
  const double seconds = best_of([&] {
    for (int i = 0; i < calls; ++i) pool.parallel_for(64, 1, [](int, int) {});
  });
  report("pool/empty parallel_for", seconds / calls * 1e6, "us");
}

// ---- Products ---------------------------------------------------------------------------------

std::uint32_t next_random = 12345;
float random_value() {
  next_random = next_random * 1664525u + 1013904223u;
  return static_cast<float>(next_random >> 8) * 0x1p-23f - 1.0f;
}

std::vector<float> random_values(std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random_value();
  return values;
}

PackedMatrix random_matrix(const Backend& backend, WeightFormat format, int n, int k) {
  const auto values = random_values(static_cast<std::size_t>(n) * k);
  if (format == WeightFormat::f32) return backend.pack_f32(values.data(), n, k);
  if (format == WeightFormat::int8) {
    std::vector<std::int8_t> q;
    for (float value : values) q.push_back(static_cast<std::int8_t>(value * 127.0f));
    const std::vector<float> scale(n, 0.0005f);
    return backend.pack_int8(q.data(), scale.data(), n, k, {});
  }
  std::vector<std::uint16_t> bits;
  for (float value : values) {
    std::uint32_t wide = 0;
    __builtin_memcpy(&wide, &value, sizeof(wide));
    bits.push_back(static_cast<std::uint16_t>((wide & 0xffff0000u) == 0 ? 0 : (wide >> 16)));
  }
  // Small enough that a deep stack of layers keeps its magnitudes.
  for (std::uint16_t& b : bits) b = static_cast<std::uint16_t>((b & 0x807fu) | 0x3d00u);
  return backend.pack_bf16(bits.data(), n, k);
}

struct Format {
  const char* name;
  WeightFormat weight;
  Precision precision;
};

const Format formats[] = {{"f32", WeightFormat::f32, Precision::f32},
                          {"bf16w", WeightFormat::bf16, Precision::f32},
                          {"bf16", WeightFormat::bf16, Precision::bf16},
                          {"int8", WeightFormat::int8, Precision::bf16}};

double peak_of(const Peaks& peaks, const Format& format) {
  if (format.weight == WeightFormat::int8) return peaks.int8;
  return format.precision == Precision::bf16 ? peaks.bf16 : peaks.f32;
}

// Few rows meet weights that do not stay in the second-level cache, as in a model: several matrices
// in turn. Many rows are bound by arithmetic.
void bench_products(const Backend& backend, Context& context, const Peaks& peaks) {
  const int shapes[][2] = {{512, 256}, {256, 256}, {4096, 256}, {2048, 2048}};
  for (const Format& format : formats) {
    for (const auto& shape : shapes) {
      const int n = shape[0];
      const int k = shape[1];
      std::vector<PackedMatrix> matrices;
      std::size_t bytes = 0;
      while (bytes < (std::size_t{16} << 20)) {
        matrices.push_back(random_matrix(backend, format.weight, n, k));
        bytes += matrices.back().bytes;
      }
      for (int m : {1, 8, 32, 512}) {
        const auto x = random_values(static_cast<std::size_t>(m) * k);
        std::vector<float> y(static_cast<std::size_t>(m) * n);
        const std::size_t used = m >= 512 ? 1 : matrices.size();
        const double seconds = best_of([&] {
          for (std::size_t i = 0; i < used; ++i) {
            backend.linear(context, x.data(), m, matrices[i], format.precision, y.data());
          }
        }) / static_cast<double>(used);
        const std::string name = std::string("linear/") + format.name + "/m" + std::to_string(m) +
                                 "/n" + std::to_string(n) + "k" + std::to_string(k);
        const double macs = static_cast<double>(m) * n * k / seconds;
        report(name + "/of peak", 100.0 * macs / (peak_of(peaks, format) * context.pool->threads()),
               "%");
        if (m == 1) {
          report(name + "/of read",
                 100.0 * static_cast<double>(matrices[0].bytes) / seconds * 1e-9 / peaks.read_gbps,
                 "%");
        }
      }
    }
  }
}

// What the fused gate and up saves against two products, silu and mul.
void bench_fused_experts(const Backend& backend, Context& context, const Format& format) {
  constexpr int experts = 8, width = 256;
  std::vector<PackedMatrix> both, gate, up;
  for (int e = 0; e < experts; ++e) {
    both.push_back(random_matrix(backend, format.weight, 2 * width, width));
    gate.push_back(random_matrix(backend, format.weight, width, width));
    up.push_back(random_matrix(backend, format.weight, width, width));
  }
  for (int rows : {8, 128}) {
    std::vector<std::int32_t> offsets;
    for (int e = 0; e <= experts; ++e) offsets.push_back(e * rows);
    const auto x = random_values(static_cast<std::size_t>(experts) * rows * width);
    std::vector<float> y(x.size());
    std::vector<float> z(x.size());
    const double fused = best_of([&] {
      backend.grouped_gate_up_silu(context, x.data(), offsets.data(), experts, both.data(),
                                   format.precision, y.data());
    });
    const double apart = best_of([&] {
      backend.grouped_linear(context, x.data(), offsets.data(), experts, gate.data(),
                             format.precision, y.data());
      backend.grouped_linear(context, x.data(), offsets.data(), experts, up.data(),
                             format.precision, z.data());
      backend.silu(context, y.data(), y.size(), y.data());
      backend.mul(context, y.data(), z.data(), y.size());
    });
    report(std::string("experts/") + format.name + "/rows" + std::to_string(rows) + "/fused",
           apart / fused, "times faster");
  }
}

// ---- A model's operations ---------------------------------------------------------------------

constexpr int hidden = 256, heads = 4, kv_heads = 2, head_dim = 64, experts = 8, top_k = 2;
constexpr int expert_width = 256, vocabulary = 4096, layers = 6, block_tokens = 64;
constexpr int q_width = heads * head_dim, kv_width = kv_heads * head_dim;

struct Layer {
  PackedMatrix q, k, v, o, router;
  std::vector<PackedMatrix> gate, up, down;
  std::shared_ptr<void> cache_k, cache_v;
};

struct Model {
  const Backend* backend = nullptr;
  Precision precision = Precision::bf16;
  std::vector<Layer> stack;
  PackedMatrix head;
  std::vector<std::uint16_t> table;
  std::vector<float> norm = std::vector<float>(hidden, 1.0f);
  std::vector<double> inv_freq;
  std::vector<std::int32_t> blocks;
};

Model make_model(const Backend& backend, WeightFormat format, int cache_blocks) {
  Model model;
  model.backend = &backend;
  const auto matrix = [&](int n, int k) { return random_matrix(backend, format, n, k); };
  const std::size_t cache =
      static_cast<std::size_t>(cache_blocks) * kv_heads * block_tokens * head_dim;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.q = matrix(q_width, hidden);
    layer.k = matrix(kv_width, hidden);
    layer.v = matrix(kv_width, hidden);
    layer.o = matrix(hidden, q_width);
    layer.router = random_matrix(backend, WeightFormat::bf16, experts, hidden);
    for (int e = 0; e < experts; ++e) {
      layer.gate.push_back(matrix(expert_width, hidden));
      layer.up.push_back(matrix(expert_width, hidden));
      layer.down.push_back(matrix(hidden, expert_width));
    }
    for (std::shared_ptr<void>* half : {&layer.cache_k, &layer.cache_v}) {
      *half = make_block(cache * sizeof(std::uint16_t));
      std::fill_n(static_cast<std::uint16_t*>(half->get()), cache, std::uint16_t{0x3d00});
    }
    model.stack.push_back(std::move(layer));
  }
  model.head = matrix(vocabulary, hidden);
  model.table.assign(static_cast<std::size_t>(vocabulary) * hidden, 0);
  for (std::uint16_t& bits : model.table) {
    bits = static_cast<std::uint16_t>((static_cast<int>(random_value() * 64) & 0x80ff) | 0x3f00);
  }
  for (int i = 0; i < head_dim / 2; ++i) {
    model.inv_freq.push_back(std::pow(10000.0, -2.0 * i / head_dim));
  }
  for (int i = 0; i < cache_blocks; ++i) model.blocks.push_back(i);
  return model;
}

// One forward pass; each operation's time is added to `spent` when it is given.
struct Pass {
  const Model& model;
  Context& context;
  std::vector<Segment> segments;
  int m = 0;
  int logit_rows = 0;
  std::map<std::string, double>* spent = nullptr;
  std::vector<float> x, h, q, k, v, a, router, weights, gathered, gate, up, down, logits;
  std::vector<std::int32_t> ids, positions, expert_ids, offsets, source, sampled;
  std::vector<SampleParams> params;
  std::vector<float> uniform;

  Pass(const Model& the_model, Context& the_context, std::vector<Segment> the_segments,
       int the_logit_rows)
      : model(the_model), context(the_context), segments(std::move(the_segments)),
        logit_rows(the_logit_rows) {
    for (const Segment& segment : segments) {
      m += segment.rows;
      for (int i = 0; i < segment.rows; ++i) positions.push_back(segment.start + i);
    }
    const std::size_t rows = static_cast<std::size_t>(m);
    for (std::vector<float>* buffer : {&x, &h, &q, &a}) buffer->resize(rows * hidden);
    for (std::vector<float>* buffer : {&k, &v}) buffer->resize(rows * kv_width);
    for (std::vector<float>* buffer : {&gathered, &gate, &up, &down}) {
      buffer->resize(rows * top_k * hidden);
    }
    router.resize(rows * experts);
    weights.resize(rows * top_k);
    expert_ids.resize(rows * top_k);
    source.resize(rows * top_k);
    offsets.resize(experts + 1);
    logits.resize(static_cast<std::size_t>(logit_rows) * vocabulary);
    sampled.resize(logit_rows);
    params.resize(logit_rows);
    uniform.resize(logit_rows);
    for (int i = 0; i < m; ++i) ids.push_back(i * 37 % vocabulary);
  }

  template <class Body>
  void step(const char* name, const Body& body) {
    if (spent == nullptr) {
      body();
      return;
    }
    const double start = now_s();
    body();
    (*spent)[name] += now_s() - start;
  }

  void normalise(const float* rows_in, int rows) {
    model.backend->rms_norm(context, rows_in, rows, hidden, model.norm.data(), 1e-6f, h.data());
  }

  void attend(const Layer& layer) {
    const Backend& b = *model.backend;
    const Precision p = model.precision;
    const int count = static_cast<int>(segments.size());
    const KvLayer cache{KvFormat::bf16, layer.cache_k.get(), layer.cache_v.get(),
                        kv_heads,       head_dim,            block_tokens};
    step("norm", [&] { normalise(x.data(), m); });
    step("qkv", [&] {
      b.linear(context, h.data(), m, layer.q, p, q.data());
      b.linear(context, h.data(), m, layer.k, p, k.data());
      b.linear(context, h.data(), m, layer.v, p, v.data());
    });
    step("qk norm", [&] {
      b.rms_norm(context, q.data(), m * heads, head_dim, model.norm.data(), 1e-6f, q.data());
      b.rms_norm(context, k.data(), m * kv_heads, head_dim, model.norm.data(), 1e-6f, k.data());
    });
    step("rope", [&] {
      b.rope(context, q.data(), m, heads, head_dim, positions.data(), model.inv_freq.data());
      b.rope(context, k.data(), m, kv_heads, head_dim, positions.data(), model.inv_freq.data());
    });
    step("kv append", [&] {
      b.kv_append(context, k.data(), v.data(), segments.data(), count, cache);
    });
    step("attention", [&] {
      b.attention(context, q.data(), segments.data(), count, heads, cache, a.data());
    });
    step("o", [&] { b.linear(context, a.data(), m, layer.o, p, h.data()); });
    step("add", [&] { b.add(context, x.data(), h.data(), x.size()); });
  }

  void mix(const Layer& layer) {
    const Backend& b = *model.backend;
    const Precision p = model.precision;
    step("norm", [&] { normalise(x.data(), m); });
    step("router", [&] {
      b.linear(context, h.data(), m, layer.router, Precision::f32, router.data());
      b.router_top_k(context, router.data(), m, experts, top_k, true, expert_ids.data(),
                     weights.data());
    });
    step("dispatch", [&] {
      b.expert_sort(context, expert_ids.data(), m, top_k, experts, offsets.data(), source.data());
      b.expert_gather(context, h.data(), source.data(), m, top_k, hidden, gathered.data());
    });
    step("experts", [&] {
      b.grouped_linear(context, gathered.data(), offsets.data(), experts, layer.gate.data(), p,
                       gate.data());
      b.grouped_linear(context, gathered.data(), offsets.data(), experts, layer.up.data(), p,
                       up.data());
    });
    step("silu mul", [&] {
      b.silu(context, gate.data(), gate.size(), gate.data());
      b.mul(context, gate.data(), up.data(), gate.size());
    });
    step("experts", [&] {
      b.grouped_linear(context, gate.data(), offsets.data(), experts, layer.down.data(), p,
                       down.data());
    });
    step("combine", [&] {
      b.expert_combine(context, down.data(), source.data(), weights.data(), m, top_k, hidden,
                       h.data());
    });
    step("add", [&] { b.add(context, x.data(), h.data(), x.size()); });
  }

  void run() {
    const Backend& b = *model.backend;
    step("embed", [&] {
      b.embed(context, ids.data(), m, model.table.data(), nullptr, hidden, x.data());
    });
    for (const Layer& layer : model.stack) {
      attend(layer);
      mix(layer);
    }
    const float* last = x.data() + static_cast<std::size_t>(m - logit_rows) * hidden;
    step("norm", [&] { normalise(last, logit_rows); });
    step("head", [&] {
      b.linear(context, h.data(), logit_rows, model.head, model.precision, logits.data());
    });
    step("sample", [&] {
      b.sample(context, logits.data(), logit_rows, vocabulary, params.data(), uniform.data(),
               sampled.data());
    });
  }
};

void bench_pass(const std::string& name, Pass pass) {
  const double seconds = best_of([&] { pass.run(); });
  report("model/" + name, pass.m / seconds, "tokens/s");
  std::map<std::string, double> spent;
  pass.spent = &spent;
  const int rounds = std::max(1, std::min(200, static_cast<int>(budget_s / seconds)));
  for (int i = 0; i < rounds; ++i) pass.run();
  double total = 0.0;
  for (const auto& entry : spent) total += entry.second;
  for (const auto& entry : spent) {
    report("model/" + name + "/" + entry.first, 100.0 * entry.second / total, "%");
  }
}

void bench_model(const Backend& backend, Context& context, const Format& format) {
  constexpr int batch = 32;
  constexpr int blocks_each = 10;   // 640 positions
  const Model model = make_model(backend, format.weight, batch * blocks_each);
  std::vector<Segment> decode;
  for (int i = 0; i < batch; ++i) {
    decode.push_back({i, 1, 576, model.blocks.data() + i * blocks_each});
  }
  const std::string name = format.name;
  bench_pass(name + "/prefill 512", Pass(model, context, {{0, 512, 0, model.blocks.data()}}, 1));
  bench_pass(name + "/decode 1 at 576", Pass(model, context, {decode[0]}, 1));
  bench_pass(name + "/decode 32 at 576", Pass(model, context, decode, batch));
}

}  // namespace
}  // namespace nightshift::kernels

int main(int count, char** arguments) {
  using namespace nightshift::kernels;
  if (count > 1) budget_s = std::atof(arguments[1]);
  cpu_time = count > 2 && std::string(arguments[2]) == "cpu";
  std::string reason;
  const Backend* backend = choose_backend(reason);
  if (backend == nullptr) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    return 1;
  }
  ThreadPool pool(ThreadPool::default_threads());
  Context context(pool);
  std::fprintf(stderr, "backend %s, %d threads\n", backend->name, pool.threads());
  const Peaks peaks = measure_peaks(backend->name, pool);
  bench_pool(pool);
  for (const Format& format : {formats[2], formats[3], formats[1]}) {
    bench_model(*backend, context, format);
  }
  for (const Format& format : formats) bench_fused_experts(*backend, context, format);
  bench_products(*backend, context, peaks);
  return 0;
}
