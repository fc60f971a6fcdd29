// resolved.yaml: the job as it runs. Every key of the list, every `auto` replaced by the plan's
// value, paths absolute, the cluster profile inside. Reading it back gives the same JobSpec, so a
// run is repeated from it without a search. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// A RunRecord is recorded beside the job; nothing of it changes how a run computes.
struct RunRecord {
  std::string run_id = {};  // as the run's checkpoints state it; empty: written by an older weft
  int64_t generation = 0;
  std::string weft_version;
  int64_t planned_bytes = 0;  // of the largest rank
  double predicted_step_s = 0;
  std::vector<std::string> data;           // "path size:hash", one per file
  std::vector<std::string> accepted = {};  // RunIdentity::accepted
};

// `job` with every `auto` replaced: the layout's degrees and batch cut, the length of the decay.
JobSpec Resolve(JobSpec job, const Layout& layout);

// The job as a job file that is complete in itself: the model and the cluster's profile are inside.
std::string JobFileText(const JobSpec& job);
// The same with a record of the run, and words of what it is.
std::string ResolvedText(const JobSpec& job, const RunRecord& record);

}  // namespace weft
