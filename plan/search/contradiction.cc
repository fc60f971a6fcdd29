#include "plan/search/contradiction.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

// "why not tp=9?" is answered by the same rule as tp=3.
constexpr int kExampleDegrees = 8;

// LeastLayout with the batch cut as what is fixed of it allows.
Layout LeastLayout(const Question& question, const LayoutSpec& fixed) {
  Layout least = LeastLayout(fixed);
  const int64_t global = question.batch.global_batch_size;
  if (!fixed.dp && fixed.micro_batch_size.value_or(0) > 0 &&
      fixed.gradient_accumulation_steps.value_or(0) > 0) {
    const int64_t by = *fixed.micro_batch_size * *fixed.gradient_accumulation_steps;
    if (global % by == 0) least.dp = static_cast<int>(std::min<int64_t>(global / by, 1 << 30));
  }
  least.sequence_parallel = least.sequence_parallel && least.tp > 1;
  const int64_t share = std::max<int64_t>(1, global / std::max(1, least.dp));
  if (!fixed.micro_batch_size) {
    least.gradient_accumulation_steps = fixed.gradient_accumulation_steps.value_or(share);
    least.micro_batch_size =
        std::max<int64_t>(1, share / std::max<int64_t>(1, least.gradient_accumulation_steps));
  } else if (!fixed.gradient_accumulation_steps) {
    least.gradient_accumulation_steps =
        std::max<int64_t>(1, share / std::max<int64_t>(1, least.micro_batch_size));
  }
  return least;
}

// Refuses a fixed width of ZeRO groups that divides no data group which all else allows.
absl::Status CheckZeroGroup(const Question& question, const LayoutSpec& constraints,
                            Purpose purpose) {
  if (constraints.zero_hpz_partition_size.value_or(1) <= 1) return absl::OkStatus();
  LayoutSpec freed = constraints;
  freed.zero_hpz_partition_size.reset();
  const Space space(question, freed, purpose);
  if (space.CountPoints() == 0) return absl::OkStatus();  // something else is wrong
  std::set<int64_t> widths;
  const int64_t replica = int64_t{space.tps().front()} * space.pps().front();
  for (const int dp : space.dps()) {
    for (const int cp : space.cps()) {
      if (replica * dp * cp > space.slots() || !space.Pairs(space.tps().front(), cp)) continue;
      for (const int64_t width : DivisorsOf(int64_t{dp} * cp)) widths.insert(width);
    }
  }
  if (widths.count(*constraints.zero_hpz_partition_size) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parallelism.zero_hpz_partition_size: ", *constraints.zero_hpz_partition_size,
                   " divides no data group (dp x cp) that slots and batch allow; use one of ",
                   absl::StrJoin(widths, ", ")));
}

}  // namespace

absl::Status Contradiction(const Question& question, const LayoutSpec& constraints,
                           Purpose purpose) {
  const Layout least = LeastLayout(question, constraints);
  if (purpose == Purpose::kRun) {
    RETURN_IF_ERROR(FirstIssue(EngineIssues(question.model, least)));
  }
  RETURN_IF_ERROR(CheckZeroGroup(question, constraints, purpose));
  RETURN_IF_ERROR(FirstIssue(DegreeIssues(question.model, question.cluster, least)));
  RETURN_IF_ERROR(
      FirstIssue(BatchIssues(question.model, question.batch, least.dp, constraints.micro_batch_size,
                             constraints.gradient_accumulation_steps)));
  RETURN_IF_ERROR(CheckLayout(question.model, question.cluster, question.batch, least));
  return absl::InvalidArgumentError(
      absl::StrCat("parallelism: no values of what is auto keep every rule beside ",
                   KeyedText(PropertyTexts(constraints)), "; set one of them to auto"));
}

std::vector<Rejection> RuleExamples(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose) {
  std::vector<Rejection> examples;
  std::set<std::string> keys;
  const auto look_at = [&](Layout layout) {
    layout.gradient_accumulation_steps =
        std::max<int64_t>(1, question.batch.global_batch_size / layout.dp);
    absl::Status status = CheckLayout(question.model, question.cluster, question.batch, layout);
    if (status.ok() && purpose == Purpose::kRun) {
      status = CheckRunnable(question.model, question.cluster, question.batch, layout);
    }
    if (status.ok()) return;
    std::string rule(status.message());
    if (!keys.insert(rule.substr(0, rule.find(':'))).second) return;
    examples.push_back(
        {.layout = layout, .cause = RejectionCause::kBrokenRule, .rule = std::move(rule)});
  };
  const int most = std::min(question.cluster.slots(), kExampleDegrees);
  for (int degree = 2; degree <= most; ++degree) {
    if (!constraints.tp) look_at({.tp = degree});
    if (!constraints.pp) look_at({.pp = degree});
    if (!constraints.dp) look_at({.dp = degree});
  }
  return examples;
}

}  // namespace weft
