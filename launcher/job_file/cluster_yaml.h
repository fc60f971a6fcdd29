// Files of cluster profiles: configs/clusters/<name>.yaml, a path, or a map inside the job file (as
// in resolved.yaml). The keys are plan/keys/cluster_keys.h.
#pragma once
#include <string>
#include <vector>

#include "plan/keys/value.h"
#include "plan/spec/cluster.h"

namespace weft {

// `profile`: the value of cluster.profile; `folders`: where a bare name is looked for, in order;
// `job_folder`: what a relative path is relative to.
Cluster ReadCluster(const Value& profile, const std::vector<std::string>& folders,
                    const std::string& job_folder, Issues* issues);

// Returns where bare names of profiles are looked for, best first: beside the job's folder, then
// what weft ships.
std::vector<std::string> ClusterFolders(const std::string& job_folder);

}  // namespace weft
