#include "coordinator/planning.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/host_memory.h"
#include "coordinator/hosts.h"
#include "plan/keys/cluster_keys.h"
#include "plan/search/search.h"

namespace weft {

bool IsPlannedFor(const Cluster& cluster, const std::string& fingerprint) {
  return fingerprint.empty() || fingerprint == ClusterFingerprint(cluster);
}

namespace {

// Who idles, and why: more hosts than the shape has, because there is no plan for so many or
// because some are smaller than the rest; empty: nobody.
std::string IdleNote(const Job& job, const ClusterShape& shape) {
  const int here = std::min(static_cast<int>(job.offers.size()), job.spec.cluster.nodes);
  if (here <= shape.nodes) return "";
  const auto no_plan = std::find_if(job.refused.begin(), job.refused.end(),
                                    [&](const ClusterShape& each) { return each.nodes == here; });
  return absl::StrCat(
      "; ", here - shape.nodes, here - shape.nodes == 1 ? " more idles" : " more idle",
      no_plan != job.refused.end()
          ? absl::StrCat(" as a spare, for there is no plan for ", here, MemoryNote(*no_plan, job))
          : ", offering fewer slots than the rest");
}

// The job is planned again for other hosts than those before.
Event PlanForShape(const Job& job, const ClusterShape& shape) {
  const int nodes = shape.nodes;
  const absl::StatusOr<JobSpec> spec = SpecFor(shape, job.spec);
  const absl::StatusOr<Plan> plan = spec.ok() ? FindPlan(*spec, Purpose::kRun) : spec.status();
  if (!plan.ok()) {
    return PlanRefused{plan.status().code(), absl::StrCat(plan.status().message()), shape};
  }
  std::string note = absl::StrCat("; planned for ", nodes, " of ", job.spec.cluster.nodes,
                                  nodes == 1 && job.spec.cluster.nodes == 1 ? " host" : " hosts",
                                  SlotsNote(shape, job.spec), MemoryNote(shape, job));
  absl::StrAppend(&note, IdleNote(job, shape));
  return Planned{.layout = plan->layout,
                 .planned_bytes = plan->peak_bytes(),
                 .predicted_step_s = plan->time.total_s(),
                 .note = note,
                 .shape = shape};
}

}  // namespace

Event PlanOf(const Job& job) {
  if (job.phase != Phase::kSubmitted) {
    return PlanForShape(job, ShapeToPlanFor(job).value_or(ShapeOr({}, job.spec)));
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
  const ClusterShape shape = LargestShape(job).value_or(job.shape);
  const Event plan = PlanForShape(job, shape);
  if (const auto* refused = std::get_if<PlanRefused>(&plan)) return *refused;
  if (std::get<Planned>(plan).layout == *job.layout) {
    return PlanRefused{absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("the best plan for ", shape.nodes, " hosts",
                                    SlotsNote(shape, job.spec), " is the one that runs"),
                       shape};
  }
  return MoreHosts{job.generation.number};
}

absl::Status CheckNodes(const JobSpec& spec, int least_nodes, int most_nodes) {
  constexpr int kMostPlans = 8;
  const auto on = [&](int nodes) {
    JobSpec resized = spec;
    resized.cluster.nodes = nodes;
    return resized;
  };
  for (int nodes = most_nodes; nodes >= least_nodes; --nodes) {
    if (most_nodes - nodes == kMostPlans) return absl::OkStatus();
    const JobSpec resized = on(nodes);
    const Question question = QuestionOf(resized);
    Pricer pricer(question);
    // Without the cures that FindPlan looks for, which take seconds.
    ASSIGN_OR_RETURN(const Finds finds, Solve(pricer, AskedLayout(resized), Purpose::kRun));
    if (!finds.fitting.empty()) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no plan for ", most_nodes, most_nodes == 1 ? " host" : " hosts",
      least_nodes < most_nodes ? absl::StrCat(", nor for fewer down to ", least_nodes) : "", ": ",
      FindPlan(on(most_nodes), Purpose::kRun).status().message()));
}

}  // namespace weft
