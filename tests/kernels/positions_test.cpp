#include <doctest/doctest.h>

#include <cmath>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

std::vector<double> frequencies(int head_dim, double base) {
  std::vector<double> inv_freq;
  for (int i = 0; i < head_dim / 2; ++i) inv_freq.push_back(std::pow(base, -2.0 * i / head_dim));
  return inv_freq;
}

}  // namespace

TEST_CASE("rope: within 1e-6 of float64 at positions up to 131071") {
  const std::uint64_t seed = test_seed(31);
  Random random(seed);
  const std::vector<std::int32_t> positions = {0, 1, 40, 2000, 16000, 131071, 40};
  const int m = static_cast<int>(positions.size());
  for (int head_dim : {2, 6, 18, 64, 80, 128}) {
    const auto inv_freq = frequencies(head_dim, 10000.0);
    const int heads = 3;
    const auto x = random.normals(static_cast<std::size_t>(m) * heads * head_dim);
    for (const Backend* backend : usable_backends()) {
      Runner runner(2);
      Output y(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = x[i];
      backend->rope(runner.context, y.data(), m, heads, head_dim, positions.data(),
                    inv_freq.data());
      CHECK(y.guards_intact());
      double worst = 0.0;
      for (int row = 0; row < m * heads; ++row) {
        for (int i = 0; i < head_dim / 2; ++i) {
          const std::size_t low = static_cast<std::size_t>(row) * head_dim + i;
          const std::size_t high = low + head_dim / 2;
          const double angle = positions[row / heads] * inv_freq[i];
          const double c = std::cos(angle);
          const double s = std::sin(angle);
          worst = std::fmax(worst, std::fabs(y[low] - (x[low] * c - x[high] * s)));
          worst = std::fmax(worst, std::fabs(y[high] - (x[high] * c + x[low] * s)));
        }
      }
      CHECK_MESSAGE(worst < 1e-6, name_of(*backend) << " head_dim " << head_dim << " worst "
                                                    << worst << " seed " << seed);
    }
  }
}

TEST_CASE("rope: many rows on two threads give the bits of one thread") {
  const std::uint64_t seed = test_seed(32);
  Random random(seed);
  const auto inv_freq = frequencies(64, 1e6);
  std::vector<std::int32_t> positions;
  for (int i = 0; i < 700; ++i) positions.push_back(random.below(100000));
  const auto x = random.normals(700 * 4 * 64);
  for (const Backend* backend : vector_backends()) {
    auto one = x;
    auto two = x;
    Runner first(1);
    Runner second(2);
    backend->rope(first.context, one.data(), 700, 4, 64, positions.data(), inv_freq.data());
    backend->rope(second.context, two.data(), 700, 4, 64, positions.data(), inv_freq.data());
    CHECK(same_bits(one, two));
  }
}

TEST_CASE("kv append: rows land in their blocks and nowhere else") {
  const std::uint64_t seed = test_seed(33);
  for (KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    for (int head_dim : {2, 10, 64}) {
      for (const Backend* backend : vector_backends()) {
        Random random(seed);
        Cache expected(format, 3, head_dim, 16, 30);
        Random again(seed);
        Cache cache(format, 3, head_dim, 16, 30);
        const int shapes[][2] = {{1, 0}, {40, 7}, {1, 100}, {17, 32}, {0, 5}};
        for (const auto& shape : shapes) {
          expected.add_segment(random, shape[0], shape[1]);
          cache.add_segment(again, shape[0], shape[1]);
        }
        const std::size_t count = static_cast<std::size_t>(cache.rows) * 3 * head_dim;
        const auto k = random.normals(count);
        const auto v = random.normals(count);
        Runner runner(2);
        scalar_backend().kv_append(runner.context, k.data(), v.data(), expected.segments.data(), 5,
                                   expected.layer);
        backend->kv_append(runner.context, k.data(), v.data(), cache.segments.data(), 5,
                           cache.layer);
        CHECK_MESSAGE(same_values(cache.values(), expected.values()),
                      name_of(*backend) << " head_dim " << head_dim << " seed " << seed);
      }
    }
  }
}

TEST_CASE("qk norm, rope, append: the fused operation equals its parts") {
  const std::uint64_t seed = test_seed(34);
  const int heads = 4;
  const int kv_heads = 2;
  for (int head_dim : {10, 64}) {
    const int width = (heads + 2 * kv_heads) * head_dim;
    const auto inv_freq = frequencies(head_dim, 10000.0);
    for (bool with_norm : {false, true}) {
      for (const Backend* backend : usable_backends()) {
        Random random(seed);
        Random again(seed);
        Cache fused(KvFormat::f32, kv_heads, head_dim, 8, 200);
        Cache parts(KvFormat::f32, kv_heads, head_dim, 8, 200);
        const int shapes[][2] = {{1, 2000 % 97}, {130, 3}, {1, 0}};
        for (const auto& shape : shapes) {
          fused.add_segment(random, shape[0], shape[1]);
          parts.add_segment(again, shape[0], shape[1]);
        }
        const int m = fused.rows;
        const auto qkv = random.normals(static_cast<std::size_t>(m) * width);
        const auto q_norm = random.normals(head_dim);
        const auto k_norm = random.normals(head_dim);
        Runner runner(2);
        Output q(static_cast<std::size_t>(m) * heads * head_dim);
        backend->qk_norm_rope_append(runner.context, qkv.data(), fused.segments.data(), 3, heads,
                                     with_norm ? q_norm.data() : nullptr,
                                     with_norm ? k_norm.data() : nullptr, 1e-6f, inv_freq.data(),
                                     fused.layer, q.data());
        std::vector<float> parts_q, parts_k, parts_v;
        std::vector<std::int32_t> positions;
        for (const Segment& segment : parts.segments) {
          for (int i = 0; i < segment.rows; ++i) {
            const auto row = qkv.begin() + static_cast<long>(segment.first_row + i) * width;
            const long q_end = static_cast<long>(heads) * head_dim;
            const long k_end = q_end + static_cast<long>(kv_heads) * head_dim;
            parts_q.insert(parts_q.end(), row, row + q_end);
            parts_k.insert(parts_k.end(), row + q_end, row + k_end);
            parts_v.insert(parts_v.end(), row + k_end, row + width);
            positions.push_back(segment.start + i);
          }
        }
        if (with_norm) {
          backend->rms_norm(runner.context, parts_q.data(), m * heads, head_dim, q_norm.data(),
                            1e-6f, parts_q.data());
          backend->rms_norm(runner.context, parts_k.data(), m * kv_heads, head_dim, k_norm.data(),
                            1e-6f, parts_k.data());
        }
        backend->rope(runner.context, parts_q.data(), m, heads, head_dim, positions.data(),
                      inv_freq.data());
        backend->rope(runner.context, parts_k.data(), m, kv_heads, head_dim, positions.data(),
                      inv_freq.data());
        backend->kv_append(runner.context, parts_k.data(), parts_v.data(), parts.segments.data(),
                           3, parts.layer);
        CHECK(q.guards_intact());
        CHECK_MESSAGE(same_bits(q.values(), parts_q), name_of(*backend) << " seed " << seed);
        CHECK_MESSAGE(same_values(fused.values(), parts.values()),
                      name_of(*backend) << " seed " << seed);
      }
    }
  }
}

}  // namespace nightshift::kernels::test
