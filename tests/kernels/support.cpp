#include "tests/kernels/support.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace nightshift::kernels::test {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t guard_bits = 0x7fc0dead;

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace

// splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

int Random::below(int bound) { return static_cast<int>(next() % static_cast<unsigned>(bound)); }

float Random::uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

float Random::normal() {
  const double u = (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(next() >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

std::vector<float> Random::normals(std::size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) value = scale * normal();
  return values;
}

std::vector<std::uint16_t> Random::bf16(std::size_t count, float scale) {
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) value = bf16_bits(scale * normal());
  return values;
}

std::vector<std::int8_t> Random::bytes(std::size_t count) {
  std::vector<std::int8_t> values(count);
  for (std::int8_t& value : values) value = static_cast<std::int8_t>(below(256) - 128);
  return values;
}

std::uint64_t test_seed(std::uint64_t otherwise) {
  const char* text = std::getenv("NIGHTSHIFT_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

float bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0.0f;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Eight significant bits: scale the significand to [128, 256) and let nearbyint choose even.
std::uint16_t bf16_bits(float value) {
  if (value == 0.0f || !std::isfinite(value)) {
    return static_cast<std::uint16_t>(bits_of(value) >> 16);
  }
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(value), &exponent);
  const double rounded = std::nearbyint(significand * 256.0) / 256.0;
  const auto narrow = static_cast<float>(std::ldexp(rounded, exponent));
  return static_cast<std::uint16_t>(bits_of(narrow) >> 16);
}

Output::Output(std::size_t count) : memory_(count + 2 * guard, nan_value) {
  for (std::size_t i = 0; i < guard; ++i) {
    std::memcpy(&memory_[i], &guard_bits, sizeof(float));
    std::memcpy(&memory_[memory_.size() - 1 - i], &guard_bits, sizeof(float));
  }
}

std::vector<float> Output::values() const {
  return {memory_.begin() + guard, memory_.end() - guard};
}

bool Output::guards_intact() const {
  for (std::size_t i = 0; i < guard; ++i) {
    if (bits_of(memory_[i]) != guard_bits) return false;
    if (bits_of(memory_[memory_.size() - 1 - i]) != guard_bits) return false;
  }
  return true;
}

bool Output::has_nan() const {
  for (float value : values()) {
    if (std::isnan(value)) return true;
  }
  return false;
}

double worst_relative(const std::vector<float>& a, const std::vector<float>& b, double floor) {
  double worst = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    const double error = std::fabs(static_cast<double>(a[i]) - b[i]) / (floor + std::fabs(b[i]));
    if (!(error <= worst)) {
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    }
  }
  return worst;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool same_values(const std::vector<float>& a, const std::vector<float>& b) {
  return worst_relative(a, b, 0.0) == 0.0;
}

std::vector<const Backend*> vector_backends() {
  std::vector<const Backend*> backends = usable_backends();
  backends.erase(backends.begin());
  return backends;
}

PackedMatrix Matrix::pack(const Backend& backend) const {
  switch (format) {
    case WeightFormat::f32: return backend.pack_f32(f32.data(), n, k);
    case WeightFormat::bf16: return backend.pack_bf16(bf16.data(), n, k);
    case WeightFormat::int8: return backend.pack_int8(q.data(), scale.data(), n, k, activation);
  }
  return {};
}

double Matrix::value(int row, int column) const {
  const std::size_t i = static_cast<std::size_t>(row) * k + column;
  switch (format) {
    case WeightFormat::f32: return f32[i];
    case WeightFormat::bf16: return bf16_value(bf16[i]);
    case WeightFormat::int8: return q[i];
  }
  return 0.0;
}

Matrix random_matrix(Random& random, WeightFormat format, int n, int k,
                     ActivationQuant activation) {
  const std::size_t count = static_cast<std::size_t>(n) * k;
  Matrix matrix;
  matrix.format = format;
  matrix.n = n;
  matrix.k = k;
  matrix.activation = activation;
  if (format == WeightFormat::f32) matrix.f32 = random.normals(count, 0.1f);
  if (format == WeightFormat::bf16) matrix.bf16 = random.bf16(count, 0.1f);
  if (format == WeightFormat::int8) {
    matrix.q = random.bytes(count);
    for (int i = 0; i < n; ++i) matrix.scale.push_back(0.001f + 0.01f * random.uniform());
  }
  return matrix;
}

std::string name_of(const Backend& backend) { return backend.name; }

std::string name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return "f32";
    case WeightFormat::bf16: return "bf16";
    case WeightFormat::int8: return "int8";
  }
  return "?";
}

std::string name_of(Precision precision) { return precision == Precision::f32 ? "f32" : "bf16"; }

Cache::Cache(KvFormat format, int kv_heads, int head_dim, int block_tokens, int blocks) {
  const std::size_t count =
      2 * static_cast<std::size_t>(blocks) * kv_heads * block_tokens * head_dim;
  layer = {format, nullptr, nullptr, kv_heads, head_dim, block_tokens};
  if (format == KvFormat::f32) {
    f32_.assign(count, nan_value);
    layer.k = f32_.data();
    layer.v = f32_.data() + count / 2;
  } else {
    bf16_.assign(count, bf16_bits(nan_value));
    layer.k = bf16_.data();
    layer.v = bf16_.data() + count / 2;
  }
  for (int i = 0; i < blocks; ++i) free_blocks_.push_back(i);
}

void Cache::add_segment(Random& random, int segment_rows, int start) {
  const int blocks = (start + segment_rows + layer.block_tokens - 1) / layer.block_tokens;
  std::vector<std::int32_t> table;
  for (int i = 0; i < blocks; ++i) {
    const int pick = random.below(static_cast<int>(free_blocks_.size()));
    table.push_back(free_blocks_[pick]);
    free_blocks_.erase(free_blocks_.begin() + pick);
  }
  tables_.push_back(std::move(table));
  segments.push_back({rows, segment_rows, start, tables_.back().data()});
  rows += segment_rows;
}

std::vector<float> Cache::values() const {
  if (layer.format == KvFormat::f32) return f32_;
  std::vector<float> values;
  for (std::uint16_t bits : bf16_) values.push_back(bf16_value(bits));
  return values;
}

}  // namespace nightshift::kernels::test
