#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

struct Experts {
  std::vector<Matrix> source;
  std::vector<std::int32_t> offsets;
  std::vector<float> x;
  int n = 0;
  int k = 0;
  int m() const { return offsets.back(); }
};

Experts random_experts(Random& random, WeightFormat format, int n, int k,
                       const std::vector<int>& rows) {
  Experts experts;
  experts.n = n;
  experts.k = k;
  experts.offsets.push_back(0);
  for (int count : rows) {
    const ActivationQuant activation{random.below(2) == 0 ? 0.0f : 1.5f, random.below(2) == 0};
    experts.source.push_back(random_matrix(random, format, n, k, activation));
    experts.offsets.push_back(experts.offsets.back() + count);
  }
  experts.x = random.normals(static_cast<std::size_t>(experts.m()) * k);
  return experts;
}

std::vector<float> run_grouped(const Backend& backend, int threads, const Experts& experts,
                               Precision precision, bool gate_up) {
  Runner runner(threads);
  std::vector<PackedMatrix> packed;
  for (const Matrix& matrix : experts.source) packed.push_back(matrix.pack(backend));
  const int n = gate_up ? experts.n / 2 : experts.n;
  Output y(static_cast<std::size_t>(experts.m()) * n);
  const auto run = gate_up ? backend.grouped_gate_up_silu : backend.grouped_linear;
  run(runner.context, experts.x.data(), experts.offsets.data(),
      static_cast<int>(experts.source.size()), packed.data(), precision, y.data());
  CHECK(y.guards_intact());
  return y.values();
}

const std::vector<std::vector<int>> row_counts = {{5}, {0, 3, 0, 1}, {1, 60, 0, 2, 13, 0},
                                                  {0, 0}, {130, 7}};

}  // namespace

TEST_CASE("experts: grouped products equal one linear for each expert, to the bit") {
  const std::uint64_t seed = test_seed(51);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      for (const auto& rows : row_counts) {
        const Experts experts = random_experts(random, format, 75, 43, rows);
        for (const Backend* backend : usable_backends()) {
          const auto y = run_grouped(*backend, 2, experts, precision, false);
          Runner runner(1);
          Output expected(y.size());
          for (std::size_t e = 0; e < rows.size(); ++e) {
            const std::size_t first = static_cast<std::size_t>(experts.offsets[e]);
            backend->linear(runner.context, experts.x.data() + first * 43, rows[e],
                            experts.source[e].pack(*backend), precision,
                            expected.data() + first * 75);
          }
          CHECK_MESSAGE(same_bits(y, expected.values()),
                        name_of(*backend) << " " << name_of(format) << " seed " << seed);
        }
      }
    }
  }
}

TEST_CASE("experts: the fused gate and up equals the scalar reference, aligned or not") {
  const std::uint64_t seed = test_seed(52);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      for (int half : {1, 16, 37, 100, 128, 200}) {
        const auto& rows = row_counts[random.below(static_cast<int>(row_counts.size()))];
        const Experts experts = random_experts(random, format, 2 * half, 51, rows);
        const auto expected = run_grouped(scalar_backend(), 1, experts, precision, true);
        for (const Backend* backend : vector_backends()) {
          const auto y = run_grouped(*backend, 2, experts, precision, true);
          const double worst = worst_relative(y, expected, 0.1);
          CHECK_MESSAGE(worst < 2e-5, name_of(*backend)
                                          << " " << name_of(format) << " half " << half
                                          << " worst " << worst << " seed " << seed);
          CHECK(same_bits(y, run_grouped(*backend, 1, experts, precision, true)));
        }
      }
    }
  }
}

TEST_CASE("experts: the fused gate and up gives the bits of product, silu and mul") {
  const std::uint64_t seed = test_seed(53);
  Random random(seed);
  for (WeightFormat format : {WeightFormat::bf16, WeightFormat::int8}) {
    const Experts experts = random_experts(random, format, 2 * 90, 64, {31, 0, 4});
    for (const Backend* backend : vector_backends()) {
      const auto fused = run_grouped(*backend, 2, experts, Precision::bf16, true);
      const auto both = run_grouped(*backend, 2, experts, Precision::bf16, false);
      Runner runner(1);
      std::vector<float> gate, up;
      for (int row = 0; row < experts.m(); ++row) {
        const auto first = both.begin() + static_cast<long>(row) * 180;
        gate.insert(gate.end(), first, first + 90);
        up.insert(up.end(), first + 90, first + 180);
      }
      backend->silu(runner.context, gate.data(), gate.size(), gate.data());
      backend->mul(runner.context, gate.data(), up.data(), up.size());
      CHECK_MESSAGE(same_bits(fused, gate), name_of(*backend) << " seed " << seed);
    }
  }
}

TEST_CASE("router: equals the reference, with ties, single experts and whole sets") {
  const std::uint64_t seed = test_seed(54);
  Random random(seed);
  const int shapes[][2] = {{1, 1}, {8, 2}, {8, 8}, {17, 4}, {128, 8}, {60, 4}};
  for (const auto& shape : shapes) {
    const int experts = shape[0];
    const int top_k = shape[1];
    const int m = 200;
    auto logits = random.normals(static_cast<std::size_t>(m) * experts, 3.0f);
    for (float& logit : logits) {
      if (random.below(4) == 0) logit = 1.0f;   // ties
    }
    for (bool normalise : {false, true}) {
      Runner runner(2);
      std::vector<std::int32_t> expected_ids(static_cast<std::size_t>(m) * top_k);
      Output expected(expected_ids.size());
      scalar_backend().router_top_k(runner.context, logits.data(), m, experts, top_k, normalise,
                                    expected_ids.data(), expected.data());
      for (const Backend* backend : vector_backends()) {
        std::vector<std::int32_t> ids(expected_ids.size(), -7);
        Output weights(ids.size());
        backend->router_top_k(runner.context, logits.data(), m, experts, top_k, normalise,
                              ids.data(), weights.data());
        CHECK_MESSAGE(ids == expected_ids, name_of(*backend) << " seed " << seed);
        CHECK(worst_relative(weights.values(), expected.values(), 1e-6) < 2e-6);
        CHECK(weights.guards_intact());
      }
    }
  }
}

TEST_CASE("router: a NaN row gives NaN weights and valid, distinct ids") {
  const float logits[] = {1.0f, nan_value, 0.5f, 2.0f};
  for (const Backend* backend : usable_backends()) {
    Runner runner;
    std::int32_t ids[2] = {-1, -1};
    float weights[2] = {};
    backend->router_top_k(runner.context, logits, 1, 4, 2, true, ids, weights);
    CHECK(ids[0] >= 0);
    CHECK(ids[0] < 4);
    CHECK(ids[1] >= 0);
    CHECK(ids[1] < 4);
    CHECK(ids[0] != ids[1]);
    CHECK(std::isnan(weights[0]));
  }
}

TEST_CASE("experts: sort is stable and complete, gather and combine undo each other") {
  const std::uint64_t seed = test_seed(55);
  Random random(seed);
  const int m = 90, top_k = 3, experts = 7, d = 37;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < m * top_k; ++i) ids.push_back(random.below(experts - 1));   // last one idle
  const auto x = random.normals(static_cast<std::size_t>(m) * d);
  const auto weights = random.normals(static_cast<std::size_t>(m) * top_k);
  for (const Backend* backend : usable_backends()) {
    Runner runner(2);
    std::vector<std::int32_t> offsets(experts + 1, -1);
    std::vector<std::int32_t> source(ids.size(), -1);
    backend->expert_sort(runner.context, ids.data(), m, top_k, experts, offsets.data(),
                         source.data());
    CHECK(offsets.front() == 0);
    CHECK(offsets.back() == m * top_k);
    CHECK(offsets[experts - 1] == offsets[experts]);
    for (int e = 0; e < experts; ++e) {
      for (int i = offsets[e]; i < offsets[e + 1]; ++i) {
        CHECK(ids[source[i]] == e);
        if (i > offsets[e]) CHECK(source[i] > source[i - 1]);
      }
    }
    Output gathered(ids.size() * d);
    backend->expert_gather(runner.context, x.data(), source.data(), m, top_k, d, gathered.data());
    CHECK(gathered.guards_intact());
    Output y(x.size());
    backend->expert_combine(runner.context, gathered.data(), source.data(), weights.data(), m,
                            top_k, d, y.data());
    CHECK(y.guards_intact());
    double worst = 0.0;
    for (int row = 0; row < m; ++row) {
      const double factor =
          static_cast<double>(weights[row * 3]) + weights[row * 3 + 1] + weights[row * 3 + 2];
      for (int j = 0; j < d; ++j) {
        worst = std::fmax(worst, std::fabs(y[row * d + j] - factor * x[row * d + j]));
      }
    }
    CHECK_MESSAGE(worst < 5e-6, name_of(*backend) << " worst " << worst << " seed " << seed);
  }
}

TEST_CASE("experts: sorting no rows gives empty experts") {
  for (const Backend* backend : usable_backends()) {
    Runner runner;
    std::int32_t offsets[4] = {-1, -1, -1, -1};
    backend->expert_sort(runner.context, nullptr, 0, 2, 3, offsets, nullptr);
    CHECK(std::all_of(offsets, offsets + 4, [](std::int32_t offset) { return offset == 0; }));
  }
}

}  // namespace nightshift::kernels::test
