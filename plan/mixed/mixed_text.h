// A mixed plan as people read it. Pure: text out.
#pragma once
#include <string>

#include "absl/types/span.h"
#include "plan/mixed/mixed_plan.h"
#include "plan/spec/cluster.h"
#include "plan/spec/job_spec.h"

namespace weft {

// "0 to 3"; "2".
std::string StagesText(const PartUse& use);
// "12x20, 11": runs of equal numbers as one.
std::string BlocksText(const PartUse& use);

// Says what is planned, what each part does, holds and waits for, how long a step takes, and what
// the plan has beaten: other ways, and each part alone.
std::string MixedText(const JobSpec& job, absl::Span<const Cluster> parts,
                      const MixedAnswer& answer);

}  // namespace weft
