#include "plan/spec/param_groups.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

constexpr absl::string_view kKey = "optimizer.param_groups";

bool NamesAny(absl::string_view pattern, absl::Span<const TensorSpec> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
    return MatchesPattern(pattern, tensor.name);
  });
}

// Returns what may have been meant: each name as it is, for all blocks at once, and by its last
// parts.
std::vector<std::string> NamesAndPatterns(absl::Span<const TensorSpec> tensors) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  for (const TensorSpec& tensor : tensors) {
    std::vector<std::string> parts = absl::StrSplit(tensor.name, '.');
    if (tensor.part == ModelPart::kBlock) {
      if (tensor.block > 0) continue;  // as block 0
      parts[1] = "*";
      names.push_back(absl::StrJoin(parts, "."));
    }
    for (size_t from = 1; from < parts.size(); ++from) {
      names.push_back(absl::StrCat(
          "*.",
          absl::StrJoin(parts.begin() + static_cast<std::ptrdiff_t>(from), parts.end(), ".")));
    }
  }
  return names;
}

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  // The last star stood at `star` and has taken the name up to `taken`, so that it can take one
  // character more.
  size_t at = 0;
  size_t star = absl::string_view::npos;
  size_t taken = 0;
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != absl::string_view::npos) {
      at = star + 1;
      i = ++taken;
    } else {
      return false;
    }
  }
  return pattern.substr(std::min(at, pattern.size())).find_first_not_of('*') ==
         absl::string_view::npos;
}

double WeightDecayOf(const TensorSpec& tensor, absl::Span<const ParamGroup> groups,
                     double of_matrices) {
  for (const ParamGroup& group : groups) {
    for (const std::string& pattern : group.params) {
      if (MatchesPattern(pattern, tensor.name)) return group.weight_decay;
    }
  }
  return tensor.is_matrix() ? of_matrices : 0;
}

std::vector<SpecIssue> ParamGroupIssues(absl::Span<const TensorSpec> tensors,
                                        absl::Span<const ParamGroup> groups) {
  std::vector<SpecIssue> issues;
  for (const ParamGroup& group : groups) {
    if (!std::isfinite(group.weight_decay) || group.weight_decay < 0) {
      issues.push_back(
          {std::string{kKey}, absl::StrCat("weight_decay ", group.weight_decay,
                                           " is out of range; use 0 (no decay) or more")});
    }
    if (group.params.empty()) {
      issues.push_back({std::string{kKey}, "names no params; use e.g. [\"*.bias\"]"});
    }
    for (const std::string& pattern : group.params) {
      if (NamesAny(pattern, tensors)) continue;
      const std::optional<std::string> nearest = Nearest(pattern, NamesAndPatterns(tensors));
      issues.push_back(
          {std::string{kKey}, absl::StrCat("\"", pattern, "\" matches no tensor of the model; ",
                                           nearest ? absl::StrCat("did you mean ", *nearest, "?")
                                                   : "use e.g. *.bias or blocks.*.norm1.weight")});
    }
  }
  return issues;
}

}  // namespace weft
