// A plan over several kinds of devices as JSON for other tools: docs/plan_json.md. Pure.
#pragma once
#include <string>

#include "absl/types/span.h"
#include "plan/mixed/mixed_plan.h"
#include "plan/spec/cluster.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Indented, ends with a newline. `parts`: those that the answer is about.
std::string MixedJson(const JobSpec& job, absl::Span<const Cluster> parts,
                      const MixedAnswer& answer);

}  // namespace weft
