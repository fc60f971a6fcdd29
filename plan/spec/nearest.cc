#include "plan/spec/nearest.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

namespace {

// Insertions, deletions and replacements of a character that make `candidate` of `word`.
int Distance(absl::string_view word, absl::string_view candidate) {
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
  return row.back();
}

}  // namespace

std::optional<std::string> Nearest(absl::string_view word,
                                   absl::Span<const std::string> candidates) {
  std::optional<std::string> best;
  int best_distance = std::max(2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    // Each character that one has more takes an insertion; a word may be of any length.
    const auto longer = std::abs(std::ssize(candidate) - static_cast<int64_t>(word.size()));
    if (longer >= best_distance) continue;
    const int distance = Distance(word, candidate);
    // A candidate that shares no character with the word is not near it.
    const int most = static_cast<int>(std::max(word.size(), candidate.size())) - 1;
    if (distance < best_distance && distance <= most) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates,
                       absl::string_view all) {
  constexpr size_t kFew = 3;
  constexpr size_t kLongest = 64;  // of a word that is compared: keys are shorter
  if (const auto nearest = Nearest(word, candidates)) {
    return absl::StrCat("did you mean ", *nearest, "?");
  }
  std::vector<std::string> sorted(candidates.begin(), candidates.end());
  const absl::string_view start = word.substr(0, kLongest);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const std::string& a, const std::string& b) {
    return Distance(start, a) < Distance(start, b);
  });
  if (candidates.size() <= kFew) return absl::StrCat("known are ", absl::StrJoin(candidates, ", "));
  sorted.resize(kFew);
  return absl::StrCat("the nearest are ", absl::StrJoin(sorted, ", "), "; ", all);
}

}  // namespace weft
