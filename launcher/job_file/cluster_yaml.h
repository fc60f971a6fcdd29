// Cluster profiles: configs/clusters/<name>.yaml, a path, or a map inside the job file (as in
// resolved.yaml). Strict like the job file; the keys are the fields of plan/spec/cluster.h.
#pragma once
#include <string>
#include <vector>

#include "launcher/job_file/yaml_tree.h"
#include "plan/spec/cluster.h"

namespace weft {

// `profile`: the value of cluster.profile; `folders`: where a bare name is looked for, in order;
// `job_folder`: what a relative path is relative to.
Cluster ReadCluster(const YamlNode& profile, const std::vector<std::string>& folders,
                    const std::string& job_folder, Issues* issues);

// The dotted keys of a profile, in the order in which they are written.
std::vector<std::string> ClusterKeys();

// Lines `key: value` of a profile, indented by `indent` spaces; ReadCluster reads them back
// exactly.
std::string ClusterText(const Cluster& cluster, int indent);

}  // namespace weft
