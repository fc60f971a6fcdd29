// The rules that a job keeps: the limits of the table of keys, and what joins several keys. Pure.
#pragma once
#include <vector>

#include "plan/spec/job_spec.h"
#include "plan/spec/spec_issue.h"

namespace weft {

// Returns why states of the job's optimizer are not offloaded, whatever offload.optimizer says;
// empty: they can be.
std::vector<SpecIssue> OffloadIssues(const JobSpec& job);

// Every broken rule of the values themselves (limits, the batch equation where it is determined,
// the rules of model, cluster and of the degrees that are fixed), each with its key; launcher/
// job_file/job_yaml adds file and line. What depends on an `auto` is CheckLayout's. Empty: valid.
std::vector<SpecIssue> Validate(const JobSpec& job);

// Returns what the job itself asks for that weft's engine cannot do yet: such a job can be planned,
// not run. A key that is `auto` asks for nothing; EngineIssues judges the layout that is chosen.
// REQUIRES: CheckModel holds.
std::vector<SpecIssue> RunIssues(const JobSpec& job);

}  // namespace weft
