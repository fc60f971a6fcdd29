// CheckpointFolder says where a run's checkpoints lie: launcher, coordinator and worker must not
// differ in it. Pure: links on the disk are not followed.
#pragma once
#include <string>

#include "plan/spec/job_spec.h"

namespace weft {

// Returns the folder, absolute and without "." and "..": inside the run folder, which is absolute,
// unless the job names an absolute one.
std::string CheckpointFolder(const CheckpointSpec& checkpoint, const std::string& run_folder);

}  // namespace weft
