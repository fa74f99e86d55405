#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference.h"

namespace nightshift::kernels::reference {
namespace {

bool has_nan(const float* x, int v) {
  for (int i = 0; i < v; ++i) {
    if (std::isnan(x[i])) return true;
  }
  return false;
}

int largest_of(const float* x, int v) {
  int best = 0;
  for (int i = 1; i < v; ++i) {
    if (x[i] > x[best]) best = i;
  }
  return best;
}

// Temperature, then the top_k largest, then the shortest prefix of those (in falling order, lowest
// id first on ties) whose share of the kept mass reaches top_p. The draw walks the kept ids in that
// order; with neither limit it walks all ids in their own order. An infinite logit wins outright.
int draw(const float* x, int v, const SampleParams& params, float uniform) {
  const int top = largest_of(x, v);
  const float largest = x[top];
  if (std::isinf(largest)) return top;
  std::vector<int> ids(v);
  for (int i = 0; i < v; ++i) ids[i] = i;
  const bool cut_k = params.top_k > 0 && params.top_k < v;
  const bool cut_p = params.top_p < 1.0f;
  if (cut_k || cut_p) {
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return x[a] > x[b]; });
  }
  if (cut_k) ids.resize(params.top_k);
  std::vector<double> mass(ids.size());
  double total = 0.0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double logit = static_cast<double>(x[ids[i]]) - largest;
    mass[i] = std::exp(logit / params.temperature);
    total += mass[i];
  }
  if (cut_p) {
    double kept = 0.0;
    std::size_t length = 0;
    while (length < ids.size() && (length == 0 || kept < params.top_p * total)) {
      kept += mass[length++];
    }
    ids.resize(length);
    total = kept;
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sum += mass[i];
    if (sum > static_cast<double>(uniform) * total) return ids[i];
  }
  return ids.back();
}

}  // namespace

void sample(Context&, const float* logits, int m, int v, const SampleParams* params,
            const float* uniform, std::int32_t* ids) {
  for (int row = 0; row < m; ++row) {
    const float* x = logits + static_cast<std::size_t>(row) * v;
    if (has_nan(x, v)) {
      ids[row] = -1;
    } else if (params[row].temperature > 0.0f) {
      ids[row] = draw(x, v, params[row], uniform[row]);
    } else {
      ids[row] = largest_of(x, v);
    }
  }
}

void log_likelihood(Context&, const float* logits, int m, int v, const std::int32_t* targets,
                    double* out) {
  for (int row = 0; row < m; ++row) {
    const float* x = logits + static_cast<std::size_t>(row) * v;
    const double largest = x[largest_of(x, v)];
    double total = 0.0;
    for (int i = 0; i < v; ++i) total += std::exp(x[i] - largest);
    out[row] = x[targets[row]] - largest - std::log(total);
  }
}

}  // namespace nightshift::kernels::reference
