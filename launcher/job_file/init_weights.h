// This file checks what model.init_from names, before a run starts: a Hugging Face directory or a
// checkpoint's step folder. Only headers are read here; a checkpoint's checksums are the workers'
// to verify.
#pragma once
#include <string>
#include <vector>

#include "plan/keys/value.h"
#include "plan/spec/job_spec.h"

namespace weft {

// The model of these weights, as a config.json says it; what is wrong goes to `issues`, and the
// tree is none then.
Value ReadConfigOfWeights(const std::string& folder, const Place& place, Issues* issues);

// Looks at what a run of the job needs of model.init_from before it starts: that it is there, holds
// the model's tensors and was trained as the model computes. A run that has saved goes on from its
// own checkpoints and needs nothing, unless it is to start anew (`fresh`). `root` is the job file's
// tree: a key that a person wrote may differ from the weights' own, with a note; one that has its
// default may not.
void CheckInitWeights(const JobSpec& job, bool fresh, const Value& root, Issues* issues,
                      std::vector<std::string>* notes);

}  // namespace weft
