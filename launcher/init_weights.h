// What model.init_from names, before a run starts: a Hugging Face directory or a checkpoint's step
// folder. Only headers are read here; a checkpoint's checksums are the workers' to verify.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "launcher/yaml_tree.h"
#include "plan/model.h"

namespace weft {

// The model of these weights, as a config.json says it; what is wrong goes to `issues`, and the
// tree is none then.
YamlNode ReadConfigOfWeights(const std::string& folder, const Place& place, Issues* issues);

// Whether they are those of `model`: each tensor is there with the model's dims, and no other.
// REQUIRES: CheckModel holds.
absl::Status CheckWeights(const std::string& folder, const ModelShape& model);

}  // namespace weft
