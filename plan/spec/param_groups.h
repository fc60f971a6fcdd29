// Weight decay by group of parameters: which of the model's tensors decay, and how much. By default
// matrices do, biases and the gains of norms do not, as in GPT-3 and its successors. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/model.h"
#include "plan/spec/spec_issue.h"

namespace weft {

// One of optimizer.param_groups.
struct ParamGroup {
  // Names of tensors (TensorSpec::name), in which `*` stands for any characters: "*.bias",
  // "blocks.*.norm1.weight".
  std::vector<std::string> params;
  double weight_decay = 0;
  friend bool operator==(const ParamGroup&, const ParamGroup&) = default;
};

bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Returns the decay of the first group that names the tensor. A tensor that none names has
// `of_matrices` or, if it is no matrix, 0.
double WeightDecayOf(const TensorSpec& tensor, absl::Span<const ParamGroup> groups,
                     double of_matrices);

// Names that none of the model's `tensors` has, with the nearest that one has; decays out of range.
std::vector<SpecIssue> ParamGroupIssues(absl::Span<const TensorSpec> tensors,
                                        absl::Span<const ParamGroup> groups);

}  // namespace weft
