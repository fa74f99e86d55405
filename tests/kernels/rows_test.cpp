#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
const int odd_widths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257};

}  // namespace

TEST_CASE("rows: silu is within 3e-7 of float64 from -90 to 90, and exact at the ends") {
  std::vector<float> x;
  for (int i = -90000; i <= 90000; i += 7) x.push_back(static_cast<float>(i) * 1e-3f);
  for (const Backend* backend : usable_backends()) {
    Runner runner(2);
    Output y(x.size());
    backend->silu(runner.context, x.data(), x.size(), y.data());
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0.0f || x[i] < -87.0f) continue;   // below, the result is subnormal
      const double exact = x[i] / (1.0 + std::exp(-static_cast<double>(x[i])));
      worst = std::fmax(worst, std::fabs(y[i] - exact) / std::fabs(exact));
    }
    CHECK_MESSAGE(worst < 3e-7, name_of(*backend) << " worst " << worst);
    CHECK(y.guards_intact());
    const float ends[] = {0.0f, 200.0f, -200.0f, infinity, nan_value};
    Output at_ends(5);
    backend->silu(runner.context, ends, 5, at_ends.data());
    CHECK(at_ends[0] == 0.0f);
    CHECK(at_ends[1] == 200.0f);
    CHECK(at_ends[2] == 0.0f);
    CHECK(at_ends[3] == infinity);
    CHECK(std::isnan(at_ends[4]));
  }
}

TEST_CASE("rows: add and mul are exact on odd lengths") {
  const std::uint64_t seed = test_seed(21);
  Random random(seed);
  for (int count : {0, 1, 15, 17, 4097, 70001}) {
    const auto x = random.normals(count);
    const auto start = random.normals(count);
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      Output sum(count);
      Output product(count);
      for (int i = 0; i < count; ++i) sum.data()[i] = product.data()[i] = start[i];
      backend->add(runner.context, sum.data(), x.data(), count);
      backend->mul(runner.context, product.data(), x.data(), count);
      bool exact = sum.guards_intact() && product.guards_intact();
      for (int i = 0; i < count; ++i) {
        exact = exact && sum[i] == start[i] + x[i] && product[i] == start[i] * x[i];
      }
      CHECK_MESSAGE(exact, name_of(*backend) << " count " << count << " seed " << seed);
    }
  }
}

TEST_CASE("rows: rms norm equals the scalar reference, in place too") {
  const std::uint64_t seed = test_seed(22);
  Random random(seed);
  for (int d : odd_widths) {
    const int m = 1 + random.below(300);
    const auto x = random.normals(static_cast<std::size_t>(m) * d, 3.0f);
    const auto weight = random.normals(d);
    Runner runner(2);
    Output expected(x.size());
    scalar_backend().rms_norm(runner.context, x.data(), m, d, weight.data(), 1e-6f,
                              expected.data());
    for (const Backend* backend : vector_backends()) {
      Output y(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = x[i];
      backend->rms_norm(runner.context, y.data(), m, d, weight.data(), 1e-6f, y.data());
      const double worst = worst_relative(y.values(), expected.values(), 1e-6);
      CHECK_MESSAGE(worst < 2e-6, name_of(*backend) << " d " << d << " seed " << seed);
      CHECK(y.guards_intact());
    }
  }
}

TEST_CASE("rows: the fused add and norm give the bits of add, then rms_norm") {
  const std::uint64_t seed = test_seed(23);
  Random random(seed);
  for (int d : odd_widths) {
    const int m = 1 + random.below(200);
    const auto x = random.normals(static_cast<std::size_t>(m) * d);
    const auto start = random.normals(x.size());
    const auto weight = random.normals(d);
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      auto apart = start;
      auto fused = start;
      Output y_apart(x.size());
      Output y_fused(x.size());
      backend->add(runner.context, apart.data(), x.data(), x.size());
      backend->rms_norm(runner.context, apart.data(), m, d, weight.data(), 1e-5f, y_apart.data());
      backend->add_rms_norm(runner.context, fused.data(), x.data(), m, d, weight.data(), 1e-5f,
                            y_fused.data());
      CHECK_MESSAGE(same_bits(apart, fused), name_of(*backend) << " d " << d << " seed " << seed);
      CHECK_MESSAGE(same_bits(y_apart.values(), y_fused.values()),
                    name_of(*backend) << " d " << d << " seed " << seed);
    }
  }
}

TEST_CASE("rows: a NaN stays in its row, a row of zeros stays zero") {
  std::vector<float> x(3 * 20, 1.0f);
  for (int i = 0; i < 20; ++i) x[20 + i] = 0.0f;
  x[2 * 20 + 19] = nan_value;
  const std::vector<float> weight(20, 1.0f);
  for (const Backend* backend : usable_backends()) {
    Runner runner;
    Output y(x.size());
    backend->rms_norm(runner.context, x.data(), 3, 20, weight.data(), 1e-6f, y.data());
    CHECK(y[0] == doctest::Approx(1.0));
    CHECK(y[20] == 0.0f);
    CHECK(std::isnan(y[40]));
  }
}

TEST_CASE("rows: embedding copies f32 rows and widens bf16 rows exactly") {
  const std::uint64_t seed = test_seed(24);
  Random random(seed);
  for (int d : odd_widths) {
    const auto table = random.normals(static_cast<std::size_t>(50) * d);
    const auto narrow = random.bf16(static_cast<std::size_t>(50) * d);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 9; ++i) ids.push_back(random.below(50));
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      Output a(static_cast<std::size_t>(9) * d);
      Output b(static_cast<std::size_t>(9) * d);
      backend->embed(runner.context, ids.data(), 9, nullptr, table.data(), d, a.data());
      backend->embed(runner.context, ids.data(), 9, narrow.data(), nullptr, d, b.data());
      bool exact = a.guards_intact() && b.guards_intact();
      for (int row = 0; row < 9; ++row) {
        for (int i = 0; i < d; ++i) {
          const std::size_t source = static_cast<std::size_t>(ids[row]) * d + i;
          exact = exact && a[static_cast<std::size_t>(row) * d + i] == table[source];
          exact = exact && b[static_cast<std::size_t>(row) * d + i] == bf16_value(narrow[source]);
        }
      }
      CHECK_MESSAGE(exact, name_of(*backend) << " d " << d << " seed " << seed);
    }
  }
}

TEST_CASE("calibration: channel maxima grow and report what is not finite") {
  const std::uint64_t seed = test_seed(25);
  Random random(seed);
  for (int d : odd_widths) {
    auto x = random.normals(static_cast<std::size_t>(83) * d);
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      std::vector<float> expected(d, 0.5f);
      std::vector<float> largest(d, 0.5f);
      for (std::size_t i = 0; i < x.size(); ++i) {
        expected[i % d] = std::fmax(expected[i % d], std::fabs(x[i]));
      }
      CHECK(backend->channel_abs_max(runner.context, x.data(), 83, d, largest.data()));
      CHECK_MESSAGE(same_bits(largest, expected),
                    name_of(*backend) << " d " << d << " seed " << seed);
      for (float bad : {nan_value, infinity, -infinity}) {
        auto spoiled = x;
        spoiled.back() = bad;
        CHECK(!backend->channel_abs_max(runner.context, spoiled.data(), 83, d, largest.data()));
      }
    }
  }
}

TEST_CASE("calibration: histograms equal the scalar reference to the count") {
  const std::uint64_t seed = test_seed(26);
  Random random(seed);
  for (int count : {0, 1, 15, 513, 5000, 100001}) {
    auto x = random.normals(count);
    if (count > 20) x[3] = nan_value;
    if (count > 20) x[4] = -infinity;
    for (int bins : {1, 2, 64, 1000}) {
      Runner runner(2);
      std::vector<std::uint64_t> expected(bins, 3);
      scalar_backend().abs_histogram(runner.context, x.data(), count, 0.01f, bins,
                                     expected.data());
      for (const Backend* backend : vector_backends()) {
        std::vector<std::uint64_t> counts(bins, 3);
        backend->abs_histogram(runner.context, x.data(), count, 0.01f, bins, counts.data());
        CHECK_MESSAGE(counts == expected, name_of(*backend) << " count " << count << " bins "
                                                            << bins << " seed " << seed);
      }
    }
  }
}

}  // namespace nightshift::kernels::test
