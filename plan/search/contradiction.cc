#include "plan/search/contradiction.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/search/fixed_values.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

// "why not tp=9?" is answered by the same rule as tp=3.
constexpr int kExampleDegrees = 8;

// The layout that breaks the fewest rules with what is fixed: free degrees stand as 1, or as what
// another fixed value makes of them.
Layout LeastLayout(const Question& question, const Constraints& fixed) {
  Layout least;
  least.tp = fixed.tp.value_or(1);
  least.cp = fixed.cp.value_or(1);
  least.ep = fixed.ep.value_or(1);
  least.dp = fixed.dp.value_or(std::max(1, least.ep));
  const int64_t global = question.batch.global_batch_size;
  if (!fixed.dp && fixed.micro_batch_size.value_or(0) > 0 &&
      fixed.num_microbatches.value_or(0) > 0) {
    const int64_t by = *fixed.micro_batch_size * *fixed.num_microbatches;
    if (global % by == 0) least.dp = static_cast<int>(std::min<int64_t>(global / by, 1 << 30));
  }
  least.zero_stage = fixed.zero_stage.value_or(fixed.zero_group.value_or(0) > 0 ? 1 : 0);
  least.zero_group = fixed.zero_group.value_or(0);
  if (fixed.stage_blocks) least.stage_blocks = *fixed.stage_blocks;
  least.stage_recompute = fixed.stage_recompute;
  least.virtual_stages = fixed.virtual_stages.value_or(1);
  const bool interleaved =
      fixed.schedule ? *fixed.schedule == ScheduleKind::kInterleaved : least.virtual_stages > 1;
  least.schedule = interleaved ? ScheduleKind::kInterleaved
                               : fixed.schedule.value_or(ScheduleKind::kOneForwardOneBackward);
  if (interleaved && !fixed.virtual_stages) least.virtual_stages = 2;
  const int64_t listed = std::max<int64_t>(
      {std::ssize(least.stage_blocks), std::ssize(least.stage_recompute), interleaved ? 2 : 1});
  least.pp = fixed.pp.value_or(static_cast<int>(listed));
  least.recompute = fixed.recompute.value_or(Recompute::kNone);
  least.sequence_parallel = fixed.sequence_parallel.value_or(false) && least.tp > 1;
  least.offload_optimizer = fixed.offload_optimizer.value_or(false);
  const int64_t share = std::max<int64_t>(1, global / std::max(1, least.dp));
  if (fixed.micro_batch_size) {
    least.micro_batch_size = *fixed.micro_batch_size;
    least.num_microbatches = fixed.num_microbatches.value_or(
        std::max<int64_t>(1, share / std::max<int64_t>(1, least.micro_batch_size)));
  } else {
    least.num_microbatches = fixed.num_microbatches.value_or(share);
    least.micro_batch_size =
        std::max<int64_t>(1, share / std::max<int64_t>(1, least.num_microbatches));
  }
  if (least.cp >= 1) least.head_chunks = HeadChunks(fixed, question.batch, least);
  return least;
}

// Refuses a fixed width of ZeRO groups that divides no data group which all else allows.
absl::Status CheckZeroGroup(const Question& question, const Constraints& constraints,
                            Purpose purpose) {
  if (constraints.zero_group.value_or(0) <= 0) return absl::OkStatus();
  Constraints freed = constraints;
  freed.zero_group.reset();
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
  if (widths.count(*constraints.zero_group) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parallelism.zero_hpz_partition_size: ", *constraints.zero_group,
                   " divides no data group (dp x cp) that slots and batch allow; use one of ",
                   absl::StrJoin(widths, ", ")));
}

}  // namespace

absl::Status Contradiction(const Question& question, const Constraints& constraints,
                           Purpose purpose) {
  const Layout least = LeastLayout(question, constraints);
  if (purpose == Purpose::kRun) {
    RETURN_IF_ERROR(FirstIssue(EngineIssues(question.model, least)));
  }
  RETURN_IF_ERROR(CheckZeroGroup(question, constraints, purpose));
  RETURN_IF_ERROR(FirstIssue(DegreeIssues(question.model, question.cluster, least)));
  RETURN_IF_ERROR(
      FirstIssue(BatchIssues(question.model, question.batch, least.dp, constraints.micro_batch_size,
                             constraints.num_microbatches)));
  RETURN_IF_ERROR(CheckLayout(question.model, question.cluster, question.batch, least));
  return absl::InvalidArgumentError(
      absl::StrCat("parallelism: no values of what is auto keep every rule beside ",
                   FixedValuesText(FixedValuesOf(constraints)), "; set one of them to auto"));
}

std::vector<Rejection> RuleExamples(const Question& question, const Constraints& constraints,
                                    Purpose purpose) {
  std::vector<Rejection> examples;
  std::set<std::string> keys;
  const auto look_at = [&](Layout layout) {
    layout.num_microbatches = std::max<int64_t>(1, question.batch.global_batch_size / layout.dp);
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
