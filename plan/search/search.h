// FindPlan: the one entrance to planning. The whole lattice of layouts is searched, in a fixed
// order; what is not priced is cut by a proven bound. `weft plan` and the coordinator call the same
// function. Pure.
#pragma once
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/estimate/question.h"
#include "plan/search/lattice.h"
#include "plan/search/plan.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// Returns what FindPlan chooses from: the lattice's finds, the finalists by dry runs of their
// schedules, and what repairs add. counts.points 0: `constraints` contradict each other. No finds
// fit: nothing does, and finds.nearest says what comes nearest, if all is wanted. `known_s`: the
// objective by a dry run of a layout that keeps `constraints` and fits: what is slower is not
// looked for, so that finds may be empty where that layout is the best. REQUIRES: CheckPrecision
// holds; `wanted` is not kWhetherAnyFits.
absl::StatusOr<Finds> Solve(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
                            Wanted wanted = Wanted::kAll, double known_s = kUnknownSeconds);

// Returns the best layout alone, by the very search of Solve, for those who know layouts that may
// be near it: the fastest of `known` that keeps `constraints` and every rule and fits bounds the
// search from the start. nullopt: nothing fits. REQUIRES: CheckPrecision holds.
absl::StatusOr<std::optional<Priced>> SolveFrom(Pricer& pricer, const LayoutSpec& constraints,
                                                Purpose purpose, absl::Span<const Layout> known);

// The layout with the most committed tokens per second (tokens/s x goodput) that keeps every rule,
// every value that the job fixes, and fits; of equals the simpler. Deterministic. InvalidArgument:
// the fixed values contradict each other, or ask, for kRun, for what the engine cannot do yet.
// FailedPrecondition: layouts exist but none fits; names the nearest one, the limit it broke and
// the smallest changes that would fit. REQUIRES: Validate(job).empty().
absl::StatusOr<Plan> FindPlan(const JobSpec& job, Purpose purpose);

// The same for any engine's habits and any values fixed. InvalidArgument also where the device does
// not offer the precision. REQUIRES: CheckModel and CheckCluster hold.
absl::StatusOr<Plan> FindPlan(const Question& question, const LayoutSpec& constraints,
                              Purpose purpose);

// The same for those who ask a pricer for more than that.
absl::StatusOr<Plan> FindPlan(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose);

// The same job with more values fixed, or others: for "why not tp=4?".
absl::StatusOr<Plan> FindPlanUnder(const JobSpec& job, const LayoutSpec& constraints,
                                   Purpose purpose);

// The plan of one given layout, without a search. InvalidArgument: the layout breaks a rule, or the
// device does not offer the precision. kRun
// also refuses what the engine cannot run (InvalidArgument) and what does not fit
// (FailedPrecondition); kEstimate answers with `fits` false.
absl::StatusOr<Plan> PlanFor(const JobSpec& job, const Layout& layout, Purpose purpose);
absl::StatusOr<Plan> PlanFor(const Question& question, const Layout& layout, Purpose purpose);

}  // namespace weft
