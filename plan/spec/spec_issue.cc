#include "plan/spec/spec_issue.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kMaxChoices = 12;

std::vector<int64_t> DivisorsUpTo(int64_t number, int64_t most) {
  std::vector<int64_t> divisors;
  for (int64_t small = 1; small * small <= number; ++small) {
    if (number % small != 0) continue;
    divisors.push_back(small);
    if (small * small != number) divisors.push_back(number / small);
  }
  std::sort(divisors.begin(), divisors.end());
  divisors.erase(std::upper_bound(divisors.begin(), divisors.end(), most), divisors.end());
  return divisors;
}

}  // namespace

absl::Status FirstIssue(const std::vector<SpecIssue>& issues) {
  if (issues.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(issues.front().key, ": ", issues.front().message));
}

std::string DivisorsText(int64_t number, int64_t most, int64_t found) {
  CHECK(number >= 1 && most >= 1);
  const std::vector<int64_t> divisors = DivisorsUpTo(number, most);
  const int64_t surplus = std::max<int64_t>(0, std::ssize(divisors) - kMaxChoices);
  const int64_t at = std::lower_bound(divisors.begin(), divisors.end(), found) - divisors.begin();
  const auto first = divisors.begin() + std::clamp<int64_t>(at - kMaxChoices / 2, 0, surplus);
  const auto last = divisors.end() - 1 - (surplus - (first - divisors.begin()));
  if (first == last) return absl::StrCat(*last);
  return absl::StrCat(absl::StrJoin(first, last, ", "), " or ", *last);
}

}  // namespace weft
