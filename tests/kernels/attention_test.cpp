#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/support.h"

namespace nightshift::kernels::test {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, block_tokens;
};

const Shape shapes[] = {{4, 2, 64, 16}, {3, 3, 10, 5}, {8, 1, 80, 7}, {6, 2, 34, 100},
                        {2, 2, 128, 64}, {60, 1, 8, 33}};

// Fills every position of every segment, the earlier ones included.
void fill(Random& random, Cache& cache) {
  Runner runner(1);
  std::vector<Segment> whole;
  int rows = 0;
  for (const Segment& segment : cache.segments) {
    whole.push_back({rows, segment.start + segment.rows, 0, segment.blocks});
    rows += segment.start + segment.rows;
  }
  const std::size_t count =
      static_cast<std::size_t>(rows) * cache.layer.kv_heads * cache.layer.head_dim;
  const auto k = random.normals(count);
  const auto v = random.normals(count);
  scalar_backend().kv_append(runner.context, k.data(), v.data(), whole.data(),
                             static_cast<int>(whole.size()), cache.layer);
}

std::vector<float> run_attention(const Backend& backend, int threads, const std::vector<float>& q,
                                 const std::vector<Segment>& segments, int heads,
                                 const KvLayer& layer) {
  Runner runner(threads);
  Output y(q.size());
  backend.attention(runner.context, q.data(), segments.data(), static_cast<int>(segments.size()),
                    heads, layer, y.data());
  CHECK(y.guards_intact());
  return y.values();
}

}  // namespace

TEST_CASE("attention: every backend equals the reference over mixed segments") {
  const std::uint64_t seed = test_seed(41);
  for (KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    for (const Shape& shape : shapes) {
      Random random(seed);
      Cache cache(format, shape.kv_heads, shape.head_dim, shape.block_tokens, 300);
      const int segments[][2] = {{1, 0}, {1, 63}, {1, 64}, {70, 0}, {1, 200}, {33, 50}, {0, 4}};
      for (const auto& segment : segments) cache.add_segment(random, segment[0], segment[1]);
      fill(random, cache);
      const auto q = random.normals(
          static_cast<std::size_t>(cache.rows) * shape.heads * shape.head_dim, 2.0f);
      const auto expected =
          run_attention(scalar_backend(), 1, q, cache.segments, shape.heads, cache.layer);
      for (const Backend* backend : vector_backends()) {
        const auto y = run_attention(*backend, 2, q, cache.segments, shape.heads, cache.layer);
        const double worst = worst_relative(y, expected, 1.0);
        CHECK_MESSAGE(worst < 3e-6, name_of(*backend) << " head_dim " << shape.head_dim << " heads "
                                                  << shape.heads << " worst " << worst << " seed "
                                                  << seed);
        const auto one = run_attention(*backend, 1, q, cache.segments, shape.heads, cache.layer);
        CHECK(same_bits(one, y));
      }
    }
  }
}

TEST_CASE("attention: a row's bits do not depend on the segment it came in") {
  const std::uint64_t seed = test_seed(42);
  for (KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    for (const Shape& shape : shapes) {
      Random random(seed);
      const int rows = 150;
      Cache cache(format, shape.kv_heads, shape.head_dim, shape.block_tokens, 60);
      cache.add_segment(random, rows, 0);
      fill(random, cache);
      const int width = shape.heads * shape.head_dim;
      const auto q = random.normals(static_cast<std::size_t>(rows) * width);
      for (const Backend* backend : vector_backends()) {
        const auto whole = run_attention(*backend, 1, q, cache.segments, shape.heads, cache.layer);
        // The same rows as chunks of changing size, single rows among them.
        std::vector<Segment> chunks;
        for (int row = 0, size = 1; row < rows; row += size, size = 1 + (size * 7) % 23) {
          size = std::min(size, rows - row);
          chunks.push_back({row, size, row, cache.segments[0].blocks});
        }
        const auto pieces = run_attention(*backend, 2, q, chunks, shape.heads, cache.layer);
        CHECK_MESSAGE(same_values(whole, pieces),
                      name_of(*backend) << " head_dim " << shape.head_dim << " seed " << seed);
      }
    }
  }
}

TEST_CASE("attention: large scores neither overflow nor lose the winner") {
  Random random(test_seed(43));
  Cache cache(KvFormat::f32, 1, 16, 8, 20);
  cache.add_segment(random, 1, 99);
  fill(random, cache);
  const auto q = random.normals(2 * 16, 300.0f);
  const auto expected = run_attention(scalar_backend(), 1, q, cache.segments, 2, cache.layer);
  for (const Backend* backend : vector_backends()) {
    const auto y = run_attention(*backend, 1, q, cache.segments, 2, cache.layer);
    CHECK_MESSAGE(worst_relative(y, expected, 1.0) < 2e-3, name_of(*backend));
  }
}

TEST_CASE("attention: a NaN spoils the rows that see it, and no other sequence") {
  Random random(test_seed(44));
  const float nan_value = std::numeric_limits<float>::quiet_NaN();
  for (const Backend* backend : usable_backends()) {
    Cache cache(KvFormat::f32, 1, 8, 4, 60);
    cache.add_segment(random, 80, 0);
    cache.add_segment(random, 20, 0);
    fill(random, cache);
    auto q = random.normals(100 * 8);
    const int spoiled = 30;
    const std::int32_t block = cache.segments[0].blocks[spoiled / 4];
    static_cast<float*>(cache.layer.v)[(block * 4 + spoiled % 4) * 8 + 3] = nan_value;
    const auto y = run_attention(*backend, 2, q, cache.segments, 1, cache.layer);
    for (int row = 0; row < 100; ++row) {
      const bool sees = row < 80 && row >= spoiled;
      CHECK_MESSAGE(std::isnan(y[row * 8 + 3]) == sees, name_of(*backend) << " row " << row);
      CHECK(!std::isnan(y[row * 8 + 2]));
    }
  }
}

TEST_CASE("attention: no segments, and a segment of no rows, write nothing") {
  for (const Backend* backend : usable_backends()) {
    Random random(test_seed(45));
    Cache cache(KvFormat::bf16, 2, 8, 4, 4);
    CHECK(run_attention(*backend, 2, {}, {}, 2, cache.layer).empty());
    cache.add_segment(random, 0, 3);
    CHECK(run_attention(*backend, 2, {}, cache.segments, 2, cache.layer).empty());
  }
}

}  // namespace nightshift::kernels::test
