// FindMixedPlan plans one job over a fleet of several kinds of devices. Pure.
#pragma once
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/mixed/mixed_plan.h"
#include "plan/spec/cluster.h"
#include "plan/spec/job_spec.h"

namespace weft {

// The layout of `job` over `parts` with the most committed tokens a second: of two parts or more,
// 1f1b or zb_h1 (or what the job fixes), without expert parallelism unless the job fixes it, tensor
// and context parallelism inside nodes; replicas have the same blocks on all parts.
// Deterministic. InvalidArgument: parts that cannot be planned together, by name, or what the job
// fixes does not go with several parts. FailedPrecondition: nothing fits.
// REQUIRES: Validate(job).empty() but for its cluster, which plays no part.
absl::StatusOr<MixedAnswer> FindMixedPlan(const JobSpec& job, absl::Span<const Cluster> parts);

}  // namespace weft
