// A plan as JSON for other tools: stable, documented in docs/plan_json.md. Fields are added, never
// renamed or removed, while format_version stays the same. Pure.
#pragma once
#include <string>

#include "launcher/job_yaml.h"
#include "plan/search/search.h"

namespace weft {

inline constexpr int kPlanJsonVersion = 1;

// Indented, ends with a newline. `max_rejections`: how many losers are listed.
std::string PlanJson(const JobFile& file, const Plan& plan, int max_rejections);

}  // namespace weft
