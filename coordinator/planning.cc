#include "coordinator/planning.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/hosts.h"
#include "plan/keys/cluster_keys.h"
#include "plan/search/search.h"

namespace weft {

bool IsPlannedFor(const Cluster& cluster, const std::string& fingerprint) {
  return fingerprint.empty() || fingerprint == ClusterFingerprint(cluster);
}

namespace {

// The job is planned again for another number of hosts than the one before.
Event PlanForHosts(const Job& job, int nodes) {
  JobSpec spec = job.spec;
  spec.cluster.nodes = nodes;
  const absl::StatusOr<Plan> plan = FindPlan(spec, Purpose::kRun);
  if (!plan.ok()) {
    return PlanRefused{plan.status().code(), absl::StrCat(plan.status().message()), nodes};
  }
  std::string note = absl::StrCat("; planned for ", nodes, " of ", job.spec.cluster.nodes,
                                  nodes == 1 && job.spec.cluster.nodes == 1 ? " host" : " hosts");
  const int here = std::min(static_cast<int>(job.offers.size()), job.spec.cluster.nodes);
  if (here > nodes) {
    absl::StrAppend(&note, "; ", here - nodes, here - nodes == 1 ? " more idles" : " more idle",
                    " as a spare, for there is no plan for ", here);
  }
  return Planned{.layout = plan->layout,
                 .planned_bytes = plan->peak_bytes(),
                 .predicted_step_s = plan->time.total_s(),
                 .note = note,
                 .nodes = nodes};
}

}  // namespace

Event PlanOf(const Job& job) {
  if (job.phase != Phase::kSubmitted) {
    return PlanForHosts(job, HostsToPlanFor(job).value_or(job.spec.cluster.nodes));
  }
  const bool is_for_here = IsPlannedFor(job.spec.cluster, job.planned_for);
  const absl::StatusOr<Plan> plan = job.layout && is_for_here
                                        ? PlanFor(job.spec, *job.layout, Purpose::kRun)
                                        : FindPlan(job.spec, Purpose::kRun);
  if (!plan.ok()) return PlanRefused{plan.status().code(), absl::StrCat(plan.status().message())};
  const bool is_anew = job.layout && !is_for_here;
  return Planned{.layout = plan->layout,
                 .planned_bytes = plan->peak_bytes(),
                 .predicted_step_s = plan->time.total_s(),
                 .note = is_anew ? absl::StrCat("; planned anew: the plan that came was made for ",
                                                "cluster ", job.planned_for, ", this is ",
                                                ClusterFingerprint(job.spec.cluster))
                                 : ""};
}

Event GrowthOf(const Job& job) {
  const int nodes = MostHosts(job).value_or(job.nodes);
  const Event plan = PlanForHosts(job, nodes);
  if (const auto* refused = std::get_if<PlanRefused>(&plan)) return *refused;
  if (std::get<Planned>(plan).layout == *job.layout) {
    return PlanRefused{absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("the best plan for ", nodes, " hosts is the one that runs"),
                       nodes};
  }
  return MoreHosts{job.generation.number};
}

}  // namespace weft
