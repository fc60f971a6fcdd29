// FindPlan: the one entrance to planning. Every candidate layout is tried, in a fixed order; each
// that loses has a recorded reason. `weft plan` and the coordinator call the same function. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/cost.h"
#include "plan/job_spec.h"
#include "plan/layout.h"
#include "plan/memory.h"

namespace weft {

enum class RejectionCause { kBrokenRule, kDoesNotFit, kSlower };

struct Rejection {
  Layout layout;
  RejectionCause cause = RejectionCause::kSlower;
  std::string reason;        // in words, with numbers
  double step_s = 0;         // kSlower only
  int64_t memory_bytes = 0;  // worst rank; 0 when a rule is broken
};

// What one pipeline stage holds, worst rank of the stage.
struct StageMemory {
  int stage = 0;
  BlockRange blocks;
  RankMemory memory;
};

struct Plan {
  Layout layout;
  StepTime time;
  std::vector<StageMemory> stages;
  int64_t usable_bytes = 0;           // of one device, for the arena
  double bubble_fraction = 0;         // from the simulator
  std::vector<Rejection> rejections;  // nearest first: best losers, then misfits, then rules
  int64_t candidates = 0;             // layouts looked at

  int64_t peak_bytes() const;  // largest stage
  double tokens_per_s(const BatchShape& batch) const;
};

// Candidates that keep every value the job fixes, simplest first: small tp, then small pp, large
// micro batch last.
std::vector<Layout> CandidateLayouts(const JobSpec& job);

// The layout with the highest predicted tokens/s that keeps every rule and fits; ties go to the
// earlier candidate. Objective, order and reasons are deterministic. InvalidArgument: the fixed
// values contradict each other (the message is CheckLayout's). FailedPrecondition: layouts exist
// but none fits; names the nearest one and the limit it broke.
// REQUIRES: Validate(job).empty().
absl::StatusOr<Plan> FindPlan(const JobSpec& job);

// The plan of one given layout, without a search. Same errors.
absl::StatusOr<Plan> PlanFor(const JobSpec& job, const Layout& layout);

}  // namespace weft
