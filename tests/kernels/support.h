// Builders and checks of the kernel tests. Knows the Backend table; must not know how one is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/thread_pool.h"

namespace nightshift::kernels::test {

// Random numbers that are the same everywhere. The seed goes into every failure message.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  int below(int bound);
  float uniform();                 // [0, 1)
  float normal();                  // mean 0, deviation 1
  std::vector<float> normals(std::size_t count, float scale = 1.0f);
  std::vector<std::uint16_t> bf16(std::size_t count, float scale = 1.0f);
  std::vector<std::int8_t> bytes(std::size_t count);

 private:
  std::uint64_t state_;
};

// The seed of a test: NIGHTSHIFT_TEST_SEED when set, else `otherwise`.
std::uint64_t test_seed(std::uint64_t otherwise);

float bf16_value(std::uint16_t bits);
std::uint16_t bf16_bits(float value);   // round to nearest even, by arithmetic
inline float bf16_rounded(float value) { return bf16_value(bf16_bits(value)); }

// A float array that begins as NaN and has guard zones on both sides.
class Output {
 public:
  explicit Output(std::size_t count);
  float* data() { return memory_.data() + guard; }
  float operator[](std::size_t i) const { return memory_[guard + i]; }
  std::size_t size() const { return memory_.size() - 2 * guard; }
  std::vector<float> values() const;
  bool guards_intact() const;
  bool has_nan() const;

 private:
  static constexpr std::size_t guard = 64;
  std::vector<float> memory_;
};

// Largest |a - b| / (floor + |b|); infinity when exactly one is NaN.
double worst_relative(const std::vector<float>& a, const std::vector<float>& b, double floor);
// Bits, so that NaN equals NaN and 0 differs from -0.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);
bool same_values(const std::vector<float>& a, const std::vector<float>& b);

// Backends other than the scalar one, and all of them.
std::vector<const Backend*> vector_backends();

// A pool and a context, as each run needs them.
struct Runner {
  explicit Runner(int threads = 1) : pool(threads), context(pool) {}
  ThreadPool pool;
  Context context;
};

// A matrix in its source form, and packed for a backend.
struct Matrix {
  WeightFormat format = WeightFormat::f32;
  int n = 0;
  int k = 0;
  std::vector<float> f32;
  std::vector<std::uint16_t> bf16;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  ActivationQuant activation;

  PackedMatrix pack(const Backend& backend) const;
  double value(int row, int column) const;
};
Matrix random_matrix(Random& random, WeightFormat format, int n, int k,
                     ActivationQuant activation = {});

std::string name_of(const Backend& backend);
std::string name_of(WeightFormat format);
std::string name_of(Precision precision);

// A blocked cache, filled with NaN, and segments whose blocks are scattered over it.
struct Cache {
  Cache(KvFormat format, int kv_heads, int head_dim, int block_tokens, int blocks);
  // A segment of `rows` rows from `start` on, after the rows made so far.
  void add_segment(Random& random, int rows, int start);
  // The same memory as float values, NaN included.
  std::vector<float> values() const;

  KvLayer layer;
  std::vector<Segment> segments;
  int rows = 0;

 private:
  std::vector<float> f32_;
  std::vector<std::uint16_t> bf16_;
  std::vector<std::int32_t> free_blocks_;
  std::vector<std::vector<std::int32_t>> tables_;
};

}  // namespace nightshift::kernels::test
