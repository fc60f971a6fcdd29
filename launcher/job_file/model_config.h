// The model of a job: Hugging Face config.json keys, given in the job file or read from a
// config.json that model.path names. Keys that change the mathematics have to be ones weft carries
// out; keys of a config.json that have nothing to do with the model's mathematics are ignored by
// list.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/spec/model.h"

namespace weft {

// A ModelUse says what the model is read for.
struct ModelUse {
  bool refuse_dropouts = true;  // else a note says that they are passed over
  bool is_pretrained = false;   // its weights were trained as it says: to change it is no advice
  std::optional<int64_t> seq_len = {};  // tokens of a sequence, if known
};

// `job_model`: the section of the job file. `config`: the tree of the config.json, or null. Keys of
// the job file replace those of the config.json (a note says so). A window of attention is taken
// where no sequence is longer.
ModelShape ReadModel(const YamlNode& job_model, const YamlNode* config, const ModelUse& use,
                     Issues* issues, std::vector<std::string>* notes);

// Reads config.json at `path` (a file, or a folder that holds one). Null node with issues if it
// cannot be read. `place` is where model.path stands.
YamlNode ReadConfigJson(const std::string& path, const Place& place, Issues* issues);

// The model of a Hugging Face directory, as it computes where it does not train: dropouts are
// passed over, and a window of attention leaves as many positions as it is wide. InvalidArgument
// with all issues, one a line: no config.json, or one that weft cannot carry out.
absl::StatusOr<ModelShape> ModelOfDirectory(const std::string& folder);

// "n_head" for (gpt2, "num_heads"): the key people know, for a field of ModelShape.
std::string ModelKeyOf(ModelFamily family, absl::string_view field);

// The value of the key rope_scaling that reads back as `scaling`.
std::string RopeScalingText(const RopeScaling& scaling);

// All model keys of a family that a job file may hold, sorted (the frozen list).
std::vector<std::string> ModelKeyList(ModelFamily family);

}  // namespace weft
