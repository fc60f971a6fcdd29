// Verbs for people whose job is in pods: what `weft stop` and `weft logs` do with its job file, by
// kubectl. Speaks to people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "plan/spec/job_spec.h"

namespace weft {

// The job, if `target` is a file and its cluster.scheduler kubernetes; what is wrong with a file
// that is no job file.
absl::StatusOr<std::optional<JobSpec>> KubernetesJobOf(const std::string& target);

// Has the job ended, its pods with the time that they need to save, or at once, and waits for it.
int StopKubernetesJob(const JobSpec& job, bool now);

// Prints what the first pod has written. Returns only if it cannot: the process becomes kubectl.
int PrintPodLogs(const JobSpec& job, bool follow, int64_t tail, const std::string& since);

}  // namespace weft
