// The checkpoint that a person means, on a command line: a step folder, a checkpoint folder, a run
// folder, or the job file of a run. What it is of is in its own manifest. Where weights alone are
// wanted, a Hugging Face directory will do, which states its model and nothing about data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/model.h"

namespace weft {

// A step folder itself; else the newest checkpoint of the folder that verifies, with what was
// refused on the way. Its manifest states a model.
// InvalidArgument if there is no checkpoint, or if it is of a format that does not state its model;
// DataLoss if all there are, or the one that was named, are damaged.
absl::StatusOr<FoundCheckpoint> FindCheckpoint(const std::string& target);

struct FoundWeights {
  std::string path;  // absolute: a step folder or a Hugging Face directory
  ModelShape model;
  std::optional<Manifest> manifest;  // nullopt: a Hugging Face directory
  std::vector<std::string> refused;  // as FoundCheckpoint's
};

// A Hugging Face directory is one that holds config.json and is no folder of weft's. Its weights
// are not looked at. Errors as FindCheckpoint's; InvalidArgument for a config.json that weft cannot
// carry out.
absl::StatusOr<FoundWeights> FindWeights(const std::string& target);

// CheckpointData says what the run that saved a checkpoint read and how it validated. A Hugging
// Face directory states nothing, and takes one sequence at a time.
struct CheckpointData {
  std::optional<TokenFormat> format;  // nullopt: nothing states it
  std::optional<TokenDtype> dtype;    // nullopt: TokenEncoding's
  int64_t seq_len = 0;
  int64_t global_batch_size = 1;
  int64_t micro_batch_size = 1;
  int64_t validation_steps = 0;  // 0: the run did not validate
  // Validation read these: its own files, or all training files, of which `split` is held out.
  // "path size:hash" each.
  std::vector<std::string> files;
  double split = 0;
  // The run kept documents apart so (DataSpec).
  std::optional<int64_t> bos_token_id, eos_token_id;
  bool reset_attention_mask = false;
  bool reset_position_ids = false;
};
// A person's choice of data goes before what a checkpoint says.
struct DataChoice {
  std::optional<TokenFormat> format;
  std::optional<TokenDtype> dtype;
  std::optional<int64_t> seq_len;
};

// DataLoss if a fact of a checkpoint is missing or none of the values it may have; InvalidArgument
// if the model has not so many positions. A Hugging Face directory's seq_len is its model's
// positions, at most 1,024.
absl::StatusOr<CheckpointData> DataOf(const FoundWeights& found, const DataChoice& choice);

// "path size:hash" -> "path"
std::string PathOf(absl::string_view fingerprint);

}  // namespace weft
