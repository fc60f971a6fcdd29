// kubectl hands a manifest to Kubernetes, ends its job, and prints what pods say. What it says
// against one becomes a sentence with the cure. Pure, but for the call itself.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Applies the manifest. NotFound without kubectl; else as KubectlFailure.
absl::Status ApplyManifest(const std::string& manifest, const JobSpec& job);

// kubectl that prints what weft says in the first pod. `tail`: so many last lines; 0: all. `since`:
// only what is so young, as "10m", or since a time, as "2026-11-24T20:00:00Z"; empty: all.
std::vector<std::string> PodLogsArgv(const JobSpec& job, bool follow, int64_t tail,
                                     const std::string& since);

// kubectl that deletes the job, and waits until its pods have saved and ended; `now`: that gives
// them a second. The second command of `now` is for the pods: a job's own deletion leaves them
// their time.
std::vector<std::vector<std::string>> StopArgvs(const JobSpec& job, bool now);

// Runs those. False: there is no such job. Errors as ApplyManifest.
absl::StatusOr<bool> StopPods(const JobSpec& job, bool now);

// Returns what `words` of kubectl mean for the job.
absl::Status KubectlFailure(absl::string_view words, const JobSpec& job);

}  // namespace weft
