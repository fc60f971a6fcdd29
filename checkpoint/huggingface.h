// Hugging Face directories: config.json and model.safetensors, which `transformers` and whatever
// reads its files can load (a GPT2LMHeadModel, a Qwen3ForCausalLM; names are in
// checkpoint/huggingface_names.h). Rotary positions need no change of order: weft turns the pairs
// that Hugging Face turns.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/huggingface_names.h"
#include "checkpoint/reader.h"
#include "plan/spec/model.h"

namespace weft {

// The text of config.json.
std::string HuggingFaceConfig(const ModelShape& model);

struct HuggingFaceForm {
  std::string config;                // the text of config.json; empty: HuggingFaceConfig
  std::string dtype = "F32";         // of the weights: F32, BF16 or F16
  std::vector<std::string> besides;  // paths of files that are copied along
};

// Writes the weights, the files besides and then config.json into `folder`, which is made if need
// be; holds all weights in memory meanwhile. InvalidArgument if the folder holds something or the
// model has experts; else the reader's and the files' errors.
absl::Status ExportHuggingFace(const CheckpointReader& reader, const ModelShape& model,
                               const std::string& folder, const HuggingFaceForm& form = {});

}  // namespace weft
