// The manifest of a job for Kubernetes: a pod for each host, with an agent in each and weft run in
// the first, as an indexed Job or a JobSet. A function of the job, its plan and what lies in the
// pods. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct PodWords {
  std::string job_text = {};              // job.yaml in the pods
  std::string run_folder = {};            // absolute, as the pods see it
  double save_s = 0;                      // what one checkpoint takes
  std::vector<std::string> bundles = {};  // weftd's, then each other pod's agent's; none: not shown
};

std::string PodsManifest(const JobSpec& job, const Plan& plan, const PodWords& words);

// How many pods the job has.
int PodCount(const JobSpec& job);
// The job's objects are called so: job.name in the letters that Kubernetes takes.
std::string ObjectName(absl::string_view job_name);
// The host name of a pod, which its agent's bundle is issued for.
std::string PodName(const JobSpec& job, int index);
// "job" or "jobset", as kubectl names it.
absl::string_view ObjectKind(const JobSpec& job);

// InvalidArgument, naming the key, if a path of the job is none of the volume's.
absl::Status CheckPodPaths(const JobSpec& job);

}  // namespace weft
