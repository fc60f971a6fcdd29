// sbatch takes a batch script and gives it a number. What it says against one becomes a sentence
// with the key to change. Pure, but for the call itself.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Returns the job's id. InvalidArgument with the key that sbatch did not like; NotFound without
// sbatch; Unavailable if the controller does not answer.
absl::StatusOr<std::string> CallSbatch(const std::string& script, const SchedulerSpec& site);

// Asks sbatch whether it would take the script, and submits nothing. Errors as CallSbatch.
absl::Status TestSbatch(const std::string& script, const SchedulerSpec& site);

// The id in the output of `sbatch --parsable`: "12" or "12;cluster". Empty: there is none.
std::string JobIdIn(absl::string_view output);

// Returns what `words` of sbatch mean.
absl::Status SbatchFailure(absl::string_view words, const SchedulerSpec& site);

}  // namespace weft
