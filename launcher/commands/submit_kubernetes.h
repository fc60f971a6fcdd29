// weft submit, where cluster.scheduler is kubernetes: the manifest is written and given to kubectl.
// The volume of the pods need not be mounted here, so nothing on it is looked at. Speaks to people.
#pragma once
#include <string>

#include "launcher/job_file/job_yaml.h"

namespace weft {

// `path`: of the job file. Returns what the command ends with.
int SubmitToKubernetes(const std::string& path, const JobFileOptions& options, bool dry_run);

}  // namespace weft
