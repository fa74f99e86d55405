#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/parallel.h"

namespace nightshift::kernels {
namespace {

constexpr int first_candidates = 256;

// Scratch of one lane.
struct Workspace {
  float* mass = nullptr;        // [v]
  std::int32_t* ids = nullptr;  // [v]
};

// Walks ids (all in their own order when null) until the running mass passes uniform * total.
int walk(const float* mass, const std::int32_t* ids, int count, float uniform, double total) {
  double sum = 0.0;
  int last = ids != nullptr ? ids[0] : 0;
  for (int i = 0; i < count; ++i) {
    last = ids != nullptr ? ids[i] : i;
    sum += mass[last];
    if (sum > uniform * total) break;
  }
  return last;
}

// Sorts the next `count` candidates behind the `done` largest ones.
template <class Before>
void extend_sorted(std::int32_t* ids, int v, int done, int count, const Before& before) {
  std::int32_t* end = ids + count;
  if (count < v) std::nth_element(ids + done, end, ids + v, before);
  std::sort(ids + done, end, before);
}

int draw(const SampleKernels& kernels, const float* x, int v, float largest,
         const SampleParams& params, float uniform, const Workspace& workspace) {
  const double all =
      kernels.row_exp(x, v, largest, 1.0f / params.temperature, workspace.mass);
  const bool cut_k = params.top_k > 0 && params.top_k < v;
  const bool cut_p = params.top_p < 1.0f;
  if (!cut_k && !cut_p) return walk(workspace.mass, nullptr, v, uniform, all);

  std::int32_t* ids = workspace.ids;
  for (int i = 0; i < v; ++i) ids[i] = i;
  const auto before = [x](std::int32_t a, std::int32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
  };
  const int limit = cut_k ? params.top_k : v;
  int sorted = 0;
  double total = all;
  if (cut_k) {
    extend_sorted(ids, v, 0, limit, before);
    sorted = limit;
    total = 0.0;
    for (int i = 0; i < limit; ++i) total += workspace.mass[ids[i]];
  }
  if (!cut_p) return walk(workspace.mass, ids, limit, uniform, total);

  // Most of the mass sits in few tokens: sort ever longer prefixes, rarely the whole vocabulary.
  double kept = 0.0;
  int length = 0;
  while (length < limit && (length == 0 || kept < params.top_p * total)) {
    if (length == sorted) {
      const int wanted = std::min(limit, sorted == 0 ? first_candidates : 8 * sorted);
      extend_sorted(ids, v, sorted, wanted, before);
      sorted = wanted;
    }
    kept += workspace.mass[ids[length++]];
  }
  return walk(workspace.mass, ids, length, uniform, kept);
}

}  // namespace

void sample_rows(Context& context, const SampleKernels& kernels, const float* logits, int m, int v,
                 const SampleParams* params, const float* uniform, std::int32_t* ids) {
  const int lanes = lane_count(context);
  bool any_draw = false;
  for (int row = 0; row < m; ++row) any_draw = any_draw || params[row].temperature > 0.0f;
  const std::size_t row_values = any_draw ? static_cast<std::size_t>(v) : 0;
  auto* mass = static_cast<float*>(context.scratch(0, sizeof(float) * row_values * lanes));
  auto* order =
      static_cast<std::int32_t*>(context.scratch(1, sizeof(std::int32_t) * row_values * lanes));
  constexpr std::int64_t least_values = 32 * 1024;
  const bool alone = !any_draw && static_cast<std::int64_t>(m) * v < least_values;
  for_tasks(context, m, alone ? 1 : lanes, [&](int row, int lane) {
    const float* x = logits + static_cast<std::size_t>(row) * v;
    float largest = 0.0f;
    int index = 0;
    if (!kernels.row_max(x, v, &largest, &index)) {
      ids[row] = -1;
    } else if (params[row].temperature > 0.0f && std::isfinite(largest)) {
      ids[row] = draw(kernels, x, v, largest, params[row], uniform[row],
                      {mass + row_values * lane, order + row_values * lane});
    } else {
      ids[row] = index;
    }
  });
}

}  // namespace nightshift::kernels
