// Why a lattice is empty: the rule that the fixed values break, in the words of what was fixed. And
// of a lattice that is not: the rules that keep nearby layouts out of it. Pure.
#pragma once
#include <vector>

#include "absl/status/status.h"
#include "plan/search/plan.h"
#include "plan/search/space.h"

namespace weft {

// InvalidArgument naming the keys in conflict. REQUIRES: the space of these has no points.
absl::Status Contradiction(const Question& question, const LayoutSpec& constraints,
                           Purpose purpose);

// Small degrees that are free and that a rule forbids, one of each rule: "why not tp=3?".
std::vector<Rejection> RuleExamples(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose);

}  // namespace weft
