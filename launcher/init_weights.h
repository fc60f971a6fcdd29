// What model.init_from names, before a run starts: a Hugging Face directory or a checkpoint's step
// folder. Only headers are read here; a checkpoint's checksums are the workers' to verify.
#pragma once
#include <string>

#include "launcher/yaml_tree.h"
#include "plan/job_spec.h"

namespace weft {

// The model of these weights, as a config.json says it; what is wrong goes to `issues`, and the
// tree is none then.
YamlNode ReadConfigOfWeights(const std::string& folder, const Place& place, Issues* issues);

// Whether a run of the job starts from weights that have to be there: one that has begun has them
// in checkpoints of its own, unless it is to start anew (`fresh`).
bool NeedsInitWeights(const JobSpec& job, bool fresh);

}  // namespace weft
