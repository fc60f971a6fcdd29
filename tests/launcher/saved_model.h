// A small model that no run has trained, saved as a run saves it: for tests of what reads
// checkpoints and Hugging Face directories. Its weights are arbitrary.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plan/spec/model.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {

// A llama of 2 blocks and 40 positions.
ModelShape SmallModel(int64_t vocab_size);

// Weights by tensor, in the order of Tensors(model).
std::vector<std::vector<float>> ArbitraryWeights(const ModelShape& model);

// A checkpoint at step 7 of `folder`/saved; `facts` beside those that every manifest states, or in
// their place.
void SaveModel(const JobFolder& folder, const ModelShape& model, const std::string& format,
               const std::map<std::string, std::string>& facts = {});
void SaveModel(const JobFolder& folder, const ModelShape& model,
               const std::vector<std::vector<float>>& values, const std::string& format,
               const std::map<std::string, std::string>& facts = {});

}  // namespace weft
