// The one way to print plans, layouts, memory tables and schedules for people. Pure: text out.
#pragma once
#include <cstdint>
#include <string>

#include "plan/job_spec.h"
#include "plan/search/search.h"

namespace weft {

std::string BytesText(int64_t bytes);     // "1.50 GiB", "12.0 MiB"
std::string SecondsText(double seconds);  // "1.25 s", "34.1 ms"

// Layout, per-stage memory table, step time by term, nearest losers with their reason.
std::string PlanText(const JobSpec& job, const Plan& plan, int max_rejections);

}  // namespace weft
