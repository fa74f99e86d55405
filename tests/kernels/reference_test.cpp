// The scalar reference against arithmetic by hand: everything else is measured against it.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {

TEST_CASE("reference: a product by hand") {
  Runner runner;
  const Backend& backend = scalar_backend();
  const float w[] = {1, 2, 3, -1, 0, 0.5f};
  const float x[] = {2, 1, 0, 1, 1, 4};
  float y[4] = {};
  backend.linear(runner.context, x, 2, backend.pack_f32(w, 2, 3), Precision::f32, y);
  CHECK(y[0] == 4.0f);
  CHECK(y[1] == -2.0f);
  CHECK(y[2] == 15.0f);
  CHECK(y[3] == 1.0f);
}

TEST_CASE("reference: bf16 inputs round to nearest, ties to even") {
  Runner runner;
  const Backend& backend = scalar_backend();
  const std::uint16_t one = 0x3f80;
  const PackedMatrix unit = backend.pack_bf16(&one, 1, 1);
  const auto rounded = [&](float x) {
    float y = 0.0f;
    backend.linear(runner.context, &x, 1, unit, Precision::bf16, &y);
    return y;
  };
  CHECK(rounded(1.0f + 0x1p-8f) == 1.0f);                // tie, even below
  CHECK(rounded(1.0f + 3 * 0x1p-8f) == 1.0f + 0x1p-6f);   // tie, even above
  CHECK(rounded(1.0f + 0x1p-8f + 0x1p-20f) == 1.0f + 0x1p-7f);
  CHECK(rounded(-1.0f - 0x1p-8f) == -1.0f);
}

TEST_CASE("reference: int8 quantisation by hand, halves to even") {
  Runner runner;
  const Backend& backend = scalar_backend();
  const std::int8_t q[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const float scale[] = {1.0f, 1.0f, 0.5f};
  const float x[] = {127.0f, 2.5f, 3.5f};   // scale 1: 127, 2, 4
  float y[3] = {};
  backend.linear(runner.context, x, 1, backend.pack_int8(q, scale, 3, 3, {}), Precision::f32, y);
  CHECK(y[0] == 127.0f);
  CHECK(y[1] == 2.0f);
  CHECK(y[2] == 2.0f);
  // Static clip 12.7: scale 0.1, the first value saturates at 127 steps.
  backend.linear(runner.context, x, 1, backend.pack_int8(q, scale, 3, 3, {12.7f, false}),
                 Precision::f32, y);
  CHECK(y[0] == doctest::Approx(12.7f));
  CHECK(y[1] == doctest::Approx(2.5f));
}

TEST_CASE("reference: rms norm, silu, add and mul by hand") {
  Runner runner;
  const Backend& backend = scalar_backend();
  const float x[] = {3.0f, 4.0f};
  const float weight[] = {1.0f, 2.0f};
  float y[2] = {};
  backend.rms_norm(runner.context, x, 1, 2, weight, 0.0f, y);
  CHECK(y[0] == doctest::Approx(3.0 / std::sqrt(12.5)));
  CHECK(y[1] == doctest::Approx(8.0 / std::sqrt(12.5)));
  float residual[] = {1.0f, 1.0f};
  backend.add_rms_norm(runner.context, residual, x, 1, 2, weight, 0.5f, y);
  CHECK(residual[0] == 4.0f);
  CHECK(residual[1] == 5.0f);
  CHECK(y[0] == doctest::Approx(4.0 / std::sqrt(21.0)));
  const float ones[] = {0.0f, 1.0f};
  backend.silu(runner.context, ones, 2, y);
  CHECK(y[0] == 0.0f);
  CHECK(y[1] == doctest::Approx(1.0 / (1.0 + std::exp(-1.0))));
}

TEST_CASE("reference: rope turns pairs half a head apart") {
  Runner runner;
  const double inv_freq[] = {1.0, 0.5};
  const std::int32_t position = 3;
  float x[] = {1.0f, 0.0f, 0.0f, 2.0f};
  scalar_backend().rope(runner.context, x, 1, 1, 4, &position, inv_freq);
  CHECK(x[0] == doctest::Approx(std::cos(3.0)));
  CHECK(x[2] == doctest::Approx(std::sin(3.0)));
  CHECK(x[1] == doctest::Approx(-2.0 * std::sin(1.5)));
  CHECK(x[3] == doctest::Approx(2.0 * std::cos(1.5)));
}

TEST_CASE("reference: attention over two keys by hand") {
  Runner runner;
  float k[] = {1.0f, 0.0f, 0.0f, 1.0f};
  float v[] = {1.0f, 10.0f, 3.0f, 20.0f};
  const std::int32_t blocks[] = {0};
  const KvLayer cache{KvFormat::f32, k, v, 1, 2, 2};
  const Segment segment{0, 2, 0, blocks};
  const float q[] = {5.0f, 5.0f, 2.0f, 1.0f};
  float y[4] = {};
  scalar_backend().attention(runner.context, q, &segment, 1, 1, cache, y);
  CHECK(y[0] == 1.0f);   // the first row sees itself alone
  CHECK(y[1] == 10.0f);
  const double a = std::exp(2.0 / std::sqrt(2.0));
  const double b = std::exp(1.0 / std::sqrt(2.0));
  CHECK(y[2] == doctest::Approx((a * 1 + b * 3) / (a + b)));
  CHECK(y[3] == doctest::Approx((a * 10 + b * 20) / (a + b)));
}

TEST_CASE("reference: router weights by hand, ties to the lower id") {
  Runner runner;
  const float logits[] = {1.0f, 2.0f, 2.0f, 0.0f};
  std::int32_t ids[2] = {};
  float weights[2] = {};
  scalar_backend().router_top_k(runner.context, logits, 1, 4, 2, false, ids, weights);
  CHECK(ids[0] == 1);
  CHECK(ids[1] == 2);
  const double total = std::exp(1.0) + 2 * std::exp(2.0) + 1.0;
  CHECK(weights[0] == doctest::Approx(std::exp(2.0) / total));
  scalar_backend().router_top_k(runner.context, logits, 1, 4, 2, true, ids, weights);
  CHECK(weights[0] == doctest::Approx(0.5));
  CHECK(weights[1] == doctest::Approx(0.5));
}

TEST_CASE("reference: log likelihood of equal logits is minus log of their number") {
  Runner runner;
  const float logits[] = {7.0f, 7.0f, 7.0f, 7.0f};
  const std::int32_t target = 2;
  double out = 0.0;
  scalar_backend().log_likelihood(runner.context, logits, 1, 4, &target, &out);
  CHECK(out == doctest::Approx(-std::log(4.0)));
}

TEST_CASE("reference: histogram bins by hand") {
  Runner runner;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {0.0f, -0.4f, 0.5f, 1.6f, -100.0f, nan};
  std::uint64_t counts[] = {10, 0, 0};
  scalar_backend().abs_histogram(runner.context, x, 6, 0.5f, 3, counts);
  CHECK(counts[0] == 12);
  CHECK(counts[1] == 1);
  CHECK(counts[2] == 2);
}

}  // namespace nightshift::kernels::test
