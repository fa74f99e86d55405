#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace nightshift::kernels::reference {
namespace {

constexpr int head_slot = 0;
constexpr int score_slot = 1;

std::size_t element(const KvLayer& cache, const Segment& segment, int position, int head) {
  const std::size_t block = segment.blocks[position / cache.block_tokens];
  return ((block * cache.kv_heads + head) * cache.block_tokens + position % cache.block_tokens) *
         cache.head_dim;
}

float read(const KvLayer& cache, const void* memory, std::size_t index) {
  return cache.format == KvFormat::f32
             ? static_cast<const float*>(memory)[index]
             : widen_bf16(static_cast<const std::uint16_t*>(memory)[index]);
}

void write(const KvLayer& cache, void* memory, std::size_t index, float value) {
  if (cache.format == KvFormat::f32) {
    static_cast<float*>(memory)[index] = value;
  } else {
    static_cast<std::uint16_t*>(memory)[index] = narrow_bf16(value);
  }
}

void rotate_head(float* x, int head_dim, int position, const double* inv_freq) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * inv_freq[i];
    const auto c = static_cast<float>(std::cos(angle));
    const auto s = static_cast<float>(std::sin(angle));
    const float low = x[i];
    const float high = x[i + half];
    x[i] = low * c - high * s;
    x[i + half] = high * c + low * s;
  }
}

// One query row of one head; scores has room for position + 1 values.
void attend(const float* q, const Segment& segment, int position, int head, const KvLayer& cache,
            double* scores, float* y) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(cache.head_dim));
  double largest = -std::numeric_limits<double>::infinity();
  for (int t = 0; t <= position; ++t) {
    const std::size_t first = element(cache, segment, t, head);
    double dot = 0.0;
    for (int i = 0; i < cache.head_dim; ++i) {
      dot += static_cast<double>(q[i]) * read(cache, cache.k, first + i);
    }
    scores[t] = dot * scale;
    if (scores[t] > largest) largest = scores[t];
  }
  double total = 0.0;
  for (int t = 0; t <= position; ++t) {
    scores[t] = std::exp(scores[t] - largest);
    total += scores[t];
  }
  for (int i = 0; i < cache.head_dim; ++i) {
    double sum = 0.0;
    for (int t = 0; t <= position; ++t) {
      sum += scores[t] * read(cache, cache.v, element(cache, segment, t, head) + i);
    }
    y[i] = static_cast<float>(sum / total);
  }
}

}  // namespace

void rope(Context&, float* x, int m, int heads, int head_dim, const std::int32_t* positions,
          const double* inv_freq) {
  for (int row = 0; row < m; ++row) {
    for (int head = 0; head < heads; ++head) {
      rotate_head(x + (static_cast<std::size_t>(row) * heads + head) * head_dim, head_dim,
                  positions[row], inv_freq);
    }
  }
}

void kv_append(Context&, const float* k, const float* v, const Segment* segments, int count,
               const KvLayer& cache) {
  for (int s = 0; s < count; ++s) {
    const Segment& segment = segments[s];
    for (int row = 0; row < segment.rows; ++row) {
      for (int head = 0; head < cache.kv_heads; ++head) {
        const std::size_t target = element(cache, segment, segment.start + row, head);
        const std::size_t source =
            (static_cast<std::size_t>(segment.first_row + row) * cache.kv_heads + head) *
            cache.head_dim;
        for (int i = 0; i < cache.head_dim; ++i) {
          write(cache, cache.k, target + i, k[source + i]);
          write(cache, cache.v, target + i, v[source + i]);
        }
      }
    }
  }
}

void qk_norm_rope_append(Context& context, const float* qkv, const Segment* segments, int count,
                         int heads, const float* q_norm, const float* k_norm, float eps,
                         const double* inv_freq, const KvLayer& cache, float* q) {
  const int d = cache.head_dim;
  auto* head = static_cast<float*>(context.scratch(head_slot, sizeof(float) * d));
  const auto turn = [&](const float* source, const float* norm, int position) {
    for (int i = 0; i < d; ++i) head[i] = source[i];
    if (norm != nullptr) rms_norm(context, head, 1, d, norm, eps, head);
    rotate_head(head, d, position, inv_freq);
  };
  for (int s = 0; s < count; ++s) {
    const Segment& segment = segments[s];
    for (int i = 0; i < segment.rows; ++i) {
      const std::size_t row = static_cast<std::size_t>(segment.first_row) + i;
      const int position = segment.start + i;
      const float* source = qkv + row * (heads + 2 * cache.kv_heads) * d;
      for (int h = 0; h < heads; ++h, source += d) {
        turn(source, q_norm, position);
        for (int j = 0; j < d; ++j) q[(row * heads + h) * d + j] = head[j];
      }
      for (int h = 0; h < cache.kv_heads; ++h, source += d) {
        const std::size_t target = element(cache, segment, position, h);
        turn(source, k_norm, position);
        for (int j = 0; j < d; ++j) {
          write(cache, cache.k, target + j, head[j]);
          write(cache, cache.v, target + j,
                source[static_cast<std::size_t>(cache.kv_heads) * d + j]);
        }
      }
    }
  }
}

void attention(Context& context, const float* q, const Segment* segments, int count, int heads,
               const KvLayer& cache, float* y) {
  for (int s = 0; s < count; ++s) {
    const Segment& segment = segments[s];
    const std::size_t longest = static_cast<std::size_t>(segment.start) + segment.rows;
    auto* scores = static_cast<double*>(context.scratch(score_slot, sizeof(double) * longest));
    for (int row = 0; row < segment.rows; ++row) {
      for (int head = 0; head < heads; ++head) {
        const std::size_t first =
            (static_cast<std::size_t>(segment.first_row + row) * heads + head) * cache.head_dim;
        attend(q + first, segment, segment.start + row, head / (heads / cache.kv_heads), cache,
               scores, y + first);
      }
    }
  }
}

}  // namespace nightshift::kernels::reference
