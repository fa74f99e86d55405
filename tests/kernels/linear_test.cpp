#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  int m, n, k;
};

const Shape odd_shapes[] = {{1, 1, 1},   {1, 16, 2},   {2, 17, 3},   {3, 15, 31},  {1, 257, 65},
                            {5, 33, 64}, {7, 130, 9},  {11, 64, 47}, {12, 31, 33}, {13, 48, 128},
                            {25, 3, 77}, {49, 70, 50}, {97, 41, 18}};

std::vector<float> run_linear(const Backend& backend, int threads, const std::vector<float>& x,
                              int m, const Matrix& matrix, Precision precision) {
  Runner runner(threads);
  const PackedMatrix packed = matrix.pack(backend);
  Output y(static_cast<std::size_t>(m) * matrix.n);
  backend.linear(runner.context, x.data(), m, packed, precision, y.data());
  CHECK(y.guards_intact());
  return y.values();
}

// Largest error against float64, in units of float32 rounding of the sum of magnitudes.
double worst_error(const std::vector<float>& y, const std::vector<float>& x, int m,
                   const Matrix& matrix, Precision precision) {
  double worst = 0.0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < matrix.n; ++j) {
      double sum = 0.0;
      double magnitude = 1e-30;
      for (int t = 0; t < matrix.k; ++t) {
        const float raw = x[static_cast<std::size_t>(i) * matrix.k + t];
        const double term =
            static_cast<double>(precision == Precision::bf16 ? bf16_rounded(raw) : raw) *
            matrix.value(j, t);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error =
          std::fabs(y[static_cast<std::size_t>(i) * matrix.n + j] - sum) / (magnitude * 0x1p-24);
      if (!(error <= worst)) worst = std::isnan(error) ? 1e30 : error;
    }
  }
  return worst;
}

std::string label(const Backend& backend, WeightFormat format, Precision precision, Shape shape,
                  std::uint64_t seed) {
  return std::string(backend.name) + " " + name_of(format) + "/" + name_of(precision) + " m " +
         std::to_string(shape.m) + " n " + std::to_string(shape.n) + " k " +
         std::to_string(shape.k) + " seed " + std::to_string(seed);
}

}  // namespace

TEST_CASE("linear: every backend equals float64 arithmetic on odd shapes") {
  const std::uint64_t seed = test_seed(11);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      for (const Shape& shape : odd_shapes) {
        const Matrix matrix = random_matrix(random, format, shape.n, shape.k);
        const auto x = random.normals(static_cast<std::size_t>(shape.m) * shape.k);
        for (const Backend* backend : usable_backends()) {
          const auto y = run_linear(*backend, 2, x, shape.m, matrix, precision);
          const double error = worst_error(y, x, shape.m, matrix, precision);
          CHECK_MESSAGE(error < 4.0 + 2.0 * std::sqrt(shape.k),
                        label(*backend, format, precision, shape, seed) << " error " << error);
        }
      }
    }
  }
}

TEST_CASE("linear: int8 products equal the scalar reference to the bit") {
  const std::uint64_t seed = test_seed(12);
  Random random(seed);
  const ActivationQuant activations[] = {{0.0f, true}, {1.5f, true}, {2.0f, false}};
  for (const Shape& shape : odd_shapes) {
    for (const ActivationQuant& activation : activations) {
      const Matrix matrix = random_matrix(random, WeightFormat::int8, shape.n, shape.k, activation);
      const auto x = random.normals(static_cast<std::size_t>(shape.m) * shape.k);
      const auto expected = run_linear(scalar_backend(), 1, x, shape.m, matrix, Precision::f32);
      for (const Backend* backend : vector_backends()) {
        const auto y = run_linear(*backend, 2, x, shape.m, matrix, Precision::bf16);
        CHECK_MESSAGE(same_values(y, expected),
                      label(*backend, WeightFormat::int8, Precision::f32, shape, seed));
      }
    }
  }
}

TEST_CASE("linear: extreme int8 values at k = 32768 do not overflow") {
  const int k = 32768;
  Matrix matrix;
  matrix.format = WeightFormat::int8;
  matrix.n = 2;
  matrix.k = k;
  matrix.q.assign(2 * k, -128);
  for (int i = 0; i < k; ++i) matrix.q[k + i] = 127;
  matrix.scale = {1.0f, 1.0f};
  const std::vector<float> x(k, 127.0f);   // scale exactly 1, quantised to 127
  for (const Backend* backend : usable_backends()) {
    const auto y = run_linear(*backend, 1, x, 1, matrix, Precision::f32);
    CHECK_MESSAGE(y[0] == static_cast<float>(-128.0 * 127 * k), name_of(*backend));
    CHECK_MESSAGE(y[1] == static_cast<float>(127.0 * 127 * k), name_of(*backend));
  }
}

TEST_CASE("linear: f32 rows do not depend on the rows beside them") {
  const std::uint64_t seed = test_seed(13);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
    for (const Shape& shape : {Shape{40, 100, 67}, Shape{33, 512, 256}}) {
      const Matrix matrix = random_matrix(random, format, shape.n, shape.k);
      const auto x = random.normals(static_cast<std::size_t>(shape.m) * shape.k);
      for (const Backend* backend : usable_backends()) {
        const auto all = run_linear(*backend, 2, x, shape.m, matrix, Precision::f32);
        for (int m : {1, 2, 3, 5, 8, 13}) {
          const std::vector<float> part(x.begin(), x.begin() + static_cast<long>(m) * shape.k);
          const auto y = run_linear(*backend, 1, part, m, matrix, Precision::f32);
          const std::vector<float> expected(all.begin(), all.begin() + static_cast<long>(y.size()));
          CHECK_MESSAGE(same_bits(y, expected),
                        label(*backend, format, Precision::f32, {m, shape.n, shape.k}, seed));
        }
      }
    }
  }
}

TEST_CASE("linear: one thread and two give the same bits") {
  const std::uint64_t seed = test_seed(14);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      const Matrix matrix = random_matrix(random, format, 300, 260);
      const auto x = random.normals(200 * 260);
      for (const Backend* backend : vector_backends()) {
        const auto one = run_linear(*backend, 1, x, 200, matrix, precision);
        const auto two = run_linear(*backend, 2, x, 200, matrix, precision);
        CHECK_MESSAGE(same_bits(one, two), name_of(*backend) << " " << name_of(format));
      }
    }
  }
}

TEST_CASE("linear: no rows, rows of zeros, and NaN rows that spoil only themselves") {
  Random random(test_seed(15));
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    const Matrix matrix = random_matrix(random, format, 37, 29);
    for (const Backend* backend : usable_backends()) {
      CHECK(run_linear(*backend, 2, {}, 0, matrix, Precision::f32).empty());
      for (Precision precision : {Precision::f32, Precision::bf16}) {
        auto x = random.normals(4 * 29);
        for (int i = 0; i < 29; ++i) x[29 + i] = 0.0f;
        x[2 * 29 + 28] = nan_value;
        const auto y = run_linear(*backend, 2, x, 4, matrix, precision);
        for (int j = 0; j < 37; ++j) {
          CHECK(std::isfinite(y[j]));
          CHECK(y[37 + j] == 0.0f);
          CHECK(std::isnan(y[2 * 37 + j]));
          CHECK(std::isfinite(y[3 * 37 + j]));
        }
      }
    }
  }
}

TEST_CASE("linear: an infinity spoils a dynamic int8 row and is clipped by a static one") {
  Random random(test_seed(16));
  std::vector<float> x = random.normals(29);
  x[3] = std::numeric_limits<float>::infinity();
  for (const Backend* backend : usable_backends()) {
    const Matrix dynamic = random_matrix(random, WeightFormat::int8, 5, 29, {0.0f, true});
    CHECK(std::isnan(run_linear(*backend, 1, x, 1, dynamic, Precision::f32)[0]));
    const Matrix fixed = random_matrix(random, WeightFormat::int8, 5, 29, {3.0f, false});
    CHECK(std::isfinite(run_linear(*backend, 1, x, 1, fixed, Precision::f32)[0]));
  }
}

TEST_CASE("linear: packed bytes count the weights and little more") {
  Random random(test_seed(17));
  for (const Backend* backend : usable_backends()) {
    CHECK(random_matrix(random, WeightFormat::bf16, 64, 128).pack(*backend).bytes == 64 * 128 * 2);
    const std::size_t bytes =
        random_matrix(random, WeightFormat::int8, 64, 128).pack(*backend).bytes;
    CHECK(bytes >= 64 * 128);
    CHECK(bytes <= 64 * 128 + 64 * 8);
  }
}

}  // namespace nightshift::kernels::test
