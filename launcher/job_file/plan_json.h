// A plan as JSON for other tools: stable, documented in docs/plan_json.md. Fields are added, never
// renamed or removed, while format_version stays the same. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/explain/explain.h"
#include "plan/explain/summary.h"
#include "plan/placement/placement.h"
#include "plan/search/search.h"

namespace weft {

// 2: memory and time have other terms than in 1, those of plan/estimate. 3: the goodput that
// layouts are chosen by has a name of its own, apart from the bill's. 4: a layout's properties have
// the names and values of job.yaml.
inline constexpr int kPlanJsonVersion = 4;

// A plan and what was asked about it.
struct PlanReport {
  Plan plan;
  std::vector<SpecIssue> run_issues = {};  // of the job: what the engine cannot run of any layout
  std::optional<Plan> today = {};          // the best that it can, if `plan` is not
  struct Whole {
    int lost_nodes = 0;
    Plan plan;
  };
  std::optional<Whole> whole = {};  // `plan` is of what is left of its cluster
  std::vector<FrontPoint> front = {};
  std::vector<Sensitivity> sensitivities = {};
  std::string recorded_error = {};
  Summary summary = {};
  struct Hosts {
    std::vector<HostOffer> offers;
    Placement placement;
  };
  std::optional<Hosts> hosts = {};  // which rank would be where, if hosts are named
};

// Indented, ends with a newline. `max_rejections`: how many losers are listed.
std::string PlanJson(const JobFile& file, const PlanReport& report, int max_rejections);

// The answer to "why not `asked`?": the plan, what is best under `asked` or why there is nothing,
// the differences of the terms, which sum to the difference of the steps, and what the job file
// alone rules out.
std::string WhyJson(const JobFile& file, const Plan& plan, const std::string& asked,
                    const absl::StatusOr<Plan>& other);

}  // namespace weft
