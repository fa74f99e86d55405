#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

int sample_one(const Backend& backend, const std::vector<float>& logits, SampleParams params,
               float uniform) {
  Runner runner(1);
  std::int32_t id = -9;
  backend.sample(runner.context, logits.data(), 1, static_cast<int>(logits.size()), &params,
                 &uniform, &id);
  return id;
}

}  // namespace

TEST_CASE("sample: greedy takes the largest, the lowest id on ties, at every length") {
  const std::uint64_t seed = test_seed(61);
  Random random(seed);
  for (int v : {1, 2, 15, 16, 17, 63, 64, 65, 200, 4096}) {
    auto logits = random.normals(v);
    const int winner = random.below(v);
    logits[winner] = 10.0f;
    for (int i = winner + 1; i < v; i += 3) logits[i] = 10.0f;
    for (const Backend* backend : usable_backends()) {
      CHECK_MESSAGE(sample_one(*backend, logits, {}, 0.5f) == winner,
                    name_of(*backend) << " v " << v << " seed " << seed);
    }
  }
}

TEST_CASE("sample: NaN gives -1, infinities are ordinary") {
  for (const Backend* backend : usable_backends()) {
    for (float temperature : {0.0f, 1.0f}) {
      std::vector<float> logits(37, 0.5f);
      logits[36] = nan_value;
      CHECK(sample_one(*backend, logits, {temperature}, 0.1f) == -1);
      logits[36] = infinity;
      CHECK(sample_one(*backend, logits, {temperature}, 0.1f) == 36);
      CHECK(sample_one(*backend, std::vector<float>(5, -infinity), {temperature}, 0.1f) == 0);
    }
  }
}

TEST_CASE("sample: draws equal the reference for every mix of limits") {
  const std::uint64_t seed = test_seed(62);
  Random random(seed);
  const SampleParams mixes[] = {{1.0f, 0, 1.0f},   {0.7f, 5, 1.0f},     {1.3f, 0, 0.9f},
                                {1.0f, 40, 0.5f},  {2.0f, 0, 0.9999f},  {0.1f, 1, 1.0f},
                                {1.0f, 900, 0.8f}, {1.0f, 5000, 0.01f}, {5.0f, 3000, 0.99f}};
  for (int v : {1, 33, 700, 4096}) {
    for (const SampleParams& params : mixes) {
      int differ = 0;
      const int rounds = 20;
      for (int round = 0; round < rounds; ++round) {
        auto logits = random.normals(v, 2.0f);
        for (float& logit : logits) {
          if (random.below(5) == 0) logit = 1.0f;
        }
        const float uniform = random.uniform();
        const int expected = sample_one(scalar_backend(), logits, params, uniform);
        for (const Backend* backend : vector_backends()) {
          differ += sample_one(*backend, logits, params, uniform) != expected ? 1 : 0;
        }
      }
      // A draw that falls within rounding of a border may go either way.
      CHECK_MESSAGE(differ <= 1, "v " << v << " top_k " << params.top_k << " top_p "
                                      << params.top_p << " seed " << seed);
    }
  }
}

TEST_CASE("sample: temperature, top-k and top-p by hand") {
  // Probabilities 0.5, 0.25, 0.125, 0.125 at temperature 1.
  const std::vector<float> logits = {std::log(2.0f), std::log(8.0f), std::log(2.0f),
                                     std::log(4.0f)};
  for (const Backend* backend : usable_backends()) {
    // No limits: ids in their own order, 0.125 | 0.5 | 0.125 | 0.25.
    CHECK(sample_one(*backend, logits, {1.0f, 0, 1.0f}, 0.10f) == 0);
    CHECK(sample_one(*backend, logits, {1.0f, 0, 1.0f}, 0.60f) == 1);
    CHECK(sample_one(*backend, logits, {1.0f, 0, 1.0f}, 0.70f) == 2);
    CHECK(sample_one(*backend, logits, {1.0f, 0, 1.0f}, 0.80f) == 3);
    // top_k 3: falling order 1, 3, 0 (the lower id of the tie), shares 4/7, 2/7, 1/7.
    CHECK(sample_one(*backend, logits, {1.0f, 3, 1.0f}, 0.55f) == 1);
    CHECK(sample_one(*backend, logits, {1.0f, 3, 1.0f}, 0.80f) == 3);
    CHECK(sample_one(*backend, logits, {1.0f, 3, 1.0f}, 0.99f) == 0);
    // top_p 0.7 keeps 0.5 + 0.25.
    CHECK(sample_one(*backend, logits, {1.0f, 0, 0.7f}, 0.99f) == 3);
    // Temperature 1/2 squares the ratios: 16 : 4 : 1 : 1, so top_p 0.7 keeps id 1 alone.
    CHECK(sample_one(*backend, logits, {0.5f, 0, 0.7f}, 0.99f) == 1);
  }
}

TEST_CASE("sample: rows of one call have their own rules") {
  const std::vector<float> logits = {0.0f, 3.0f, nan_value, 1.0f, 5.0f, 4.0f};
  const SampleParams params[] = {{}, {}, {1.0f, 1, 1.0f}};
  const float uniform[] = {0.0f, 0.0f, 0.9f};
  for (const Backend* backend : usable_backends()) {
    Runner runner(2);
    std::int32_t ids[3] = {};
    backend->sample(runner.context, logits.data(), 3, 2, params, uniform, ids);
    CHECK(ids[0] == 1);
    CHECK(ids[1] == -1);
    CHECK(ids[2] == 0);
  }
}

TEST_CASE("log likelihood: within 1e-6 of float64 on odd lengths") {
  const std::uint64_t seed = test_seed(63);
  Random random(seed);
  for (int v : {1, 7, 16, 33, 1000, 4096}) {
    const int m = 19;
    const auto logits = random.normals(static_cast<std::size_t>(m) * v, 5.0f);
    std::vector<std::int32_t> targets;
    for (int i = 0; i < m; ++i) targets.push_back(random.below(v));
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      std::vector<double> out(m, nan_value);
      backend->log_likelihood(runner.context, logits.data(), m, v, targets.data(), out.data());
      for (int row = 0; row < m; ++row) {
        double total = 0.0;
        for (int i = 0; i < v; ++i) total += std::exp(static_cast<double>(logits[row * v + i]));
        const double exact = logits[row * v + targets[row]] - std::log(total);
        CHECK_MESSAGE(std::fabs(out[row] - exact) < 1e-6,
                      name_of(*backend) << " v " << v << " seed " << seed);
      }
    }
  }
}

TEST_CASE("log likelihood: a NaN row gives NaN") {
  const std::vector<float> logits(20, nan_value);
  const std::int32_t target = 3;
  for (const Backend* backend : usable_backends()) {
    Runner runner;
    double out = 0.0;
    backend->log_likelihood(runner.context, logits.data(), 1, 20, &target, &out);
    CHECK(std::isnan(out));
  }
}

}  // namespace nightshift::kernels::test
