// Verbs for people whose job is in pods: what `weft stop` and `weft logs` do with its job file, by
// kubectl. Speaks to people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "plan/spec/job_spec.h"

namespace weft {

// The job of the file, if it is one and cluster.scheduler is kubernetes.
std::optional<JobSpec> KubernetesJobOf(const std::string& target);

// Has all ranks saved and the job ended, or its pods ended at once, and waits for it.
int StopKubernetesJob(const JobSpec& job, bool now);

// Prints what the first pod has written. Returns only if it cannot: the process becomes kubectl.
int PrintPodLogs(const JobSpec& job, bool follow, int64_t tail, const std::string& since);

}  // namespace weft
