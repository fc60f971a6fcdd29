#include "plan/spec/nearest.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace weft {

std::optional<std::string> Nearest(absl::string_view word,
                                   absl::Span<const std::string> candidates) {
  std::optional<std::string> best;
  int best_distance = std::max(2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    // Each character that one has more takes an insertion; a word may be of any length.
    const auto longer = std::abs(std::ssize(candidate) - static_cast<int64_t>(word.size()));
    if (longer >= best_distance) continue;
    std::vector<int> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 0; i < word.size(); ++i) {
      int diagonal = row[0];
      row[0] = static_cast<int>(i) + 1;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const int substituted = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
      }
    }
    // A candidate that shares no character with the word is not near it.
    const int most = static_cast<int>(std::max(word.size(), candidate.size())) - 1;
    if (row.back() < best_distance && row.back() <= most) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace weft
