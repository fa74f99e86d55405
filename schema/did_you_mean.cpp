#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "schema/job_spec.h"

namespace nightshift {
namespace {

constexpr std::size_t word_bytes_max = 64;

// Damerau-Levenshtein in its restricted form: a swap of two neighbours costs one.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string lower_case(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  // Longer words are no slips of the finger, and the cost is quadratic.
  if (word.empty() || word.size() > word_bytes_max) return "";
  // One slip in a short word, three in a long one: beyond that a guess misleads.
  const std::size_t limit = std::clamp<std::size_t>(word.size() / 3, 1, 3);
  const std::string lower = lower_case(word);
  std::string best;
  std::size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > word_bytes_max) continue;
    const std::size_t distance = edit_distance(lower, lower_case(candidate));
    // A word as long as its distance has nothing in common with the other.
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace nightshift
