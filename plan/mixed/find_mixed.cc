#include "plan/mixed/find_mixed.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/mixed/fleet_part.h"
#include "plan/mixed/mixed_search.h"
#include "plan/search/search.h"

namespace weft {
namespace {

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

// Says what keeps the parts from being planned together, whatever the job.
absl::Status CheckParts(absl::Span<const Cluster> parts) {
  if (parts.size() < 2 || parts.size() > kMostParts) {
    return Wrong(absl::StrCat("parts: ", parts.size(), " were given; use 2 to ", kMostParts));
  }
  std::set<std::string> names;
  for (const Cluster& part : parts) {
    for (const SpecIssue& issue : ClusterIssues(part)) {
      return Wrong(absl::StrCat("part ", part.name, ": ", issue.key, ": ", issue.message));
    }
    if (!names.insert(part.name).second) {
      return Wrong(
          absl::StrCat("part ", part.name, ": is given twice; give it once, with all its nodes"));
    }
    if (part.inter_node.bytes_per_s <= 0) {
      return Wrong(absl::StrCat("part ", part.name,
                                ": has no inter_node, the link to other nodes; add it to the "
                                "profile"));
    }
    if (part.cores_per_node > 0) {
      return Wrong(absl::StrCat("part ", part.name,
                                ": its slots share cores, which is priced for fleets of one kind "
                                "alone; use profiles of GPUs"));
    }
    if (part.device.backend != parts.front().device.backend) {
      return Wrong(absl::StrCat("part ", part.name, ": its backend differs from that of ",
                                parts.front().name, "; use parts of one backend"));
    }
  }
  return absl::OkStatus();
}

// A job may fix what one layout for all kinds of devices cannot keep.
absl::Status CheckAsked(const LayoutSpec& asked) {
  const auto refuse = [](const char* key) {
    return Wrong(absl::StrCat(key,
                              ": is what a plan over several kinds of devices decides; leave "
                              "it out"));
  };
  if (asked.layers_per_stage) {
    return refuse("parallelism.layers_per_stage");
  }
  if (asked.zero_hpz_partition_size.value_or(1) > 1) {
    return Wrong(
        "parallelism.zero_hpz_partition_size: is planned for devices of one kind alone; use 1 or "
        "leave it out");
  }
  if (!asked.recompute_per_stage.empty()) return refuse("activation_checkpointing.per_stage");
  if (asked.virtual_stages.value_or(1) > 1 || asked.pp_schedule == ScheduleKind::kInterleaved) {
    return Wrong(
        "parallelism.pp_schedule: interleaved is planned for devices of one kind alone; "
        "use 1f1b, gpipe or zb_h1");
  }
  return absl::OkStatus();
}

JobSpec OnPart(const JobSpec& job, const Cluster& part) {
  JobSpec own = job;
  own.cluster = part;
  return own;
}

// `pricer`: of the job on this part.
PartAlone Alone(const JobSpec& job, const Cluster& part, Pricer& pricer) {
  const absl::StatusOr<Plan> plan =
      FindPlan(pricer, AskedLayout(OnPart(job, part)), Purpose::kEstimate);
  if (!plan.ok()) return {.why = std::string(plan.status().message())};
  return {.objective_s = plan->time.total_s() / plan->goodput, .layout = plan->layout};
}

}  // namespace

absl::StatusOr<MixedAnswer> FindMixedPlan(const JobSpec& job, absl::Span<const Cluster> parts) {
  RETURN_IF_ERROR(CheckParts(parts));
  std::vector<Question> questions;
  for (const Cluster& part : parts) {
    const absl::Status offered = CheckPrecision(part.device, job.numerics().precision);
    if (!offered.ok()) return Wrong(absl::StrCat("part ", part.name, ": ", offered.message()));
    questions.push_back(QuestionOf(OnPart(job, part)));
  }
  const LayoutSpec asked = AskedLayout(OnPart(job, parts.front()));
  RETURN_IF_ERROR(CheckAsked(asked));
  MixedSearch search(questions, asked);
  ASSIGN_OR_RETURN(MixedAnswer answer, search.Find());
  for (size_t part = 0; part < parts.size(); ++part) {
    answer.alone.push_back(Alone(job, parts[part], search.PricerOf(part)));
  }
  return answer;
}

}  // namespace weft
