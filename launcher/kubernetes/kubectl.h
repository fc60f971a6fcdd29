// kubectl hands a manifest to Kubernetes. What it says against one becomes a sentence with the
// cure. Pure, but for the call itself.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Applies the manifest. NotFound without kubectl; else as KubectlFailure.
absl::Status ApplyManifest(const std::string& manifest, const JobSpec& job);

// Returns what `words` of kubectl mean for the job.
absl::Status KubectlFailure(absl::string_view words, const JobSpec& job);

}  // namespace weft
