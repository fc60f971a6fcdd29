// WeightsReader: boxes of a model's weights out of what people keep weights in: a checkpoint's step
// folder or a Hugging Face directory, whoever saved them and in whatever layout. For
// model.init_from and for inference.
#pragma once
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/huggingface_reader.h"
#include "checkpoint/reader.h"
#include "plan/spec/model.h"

namespace weft {

// The model of a step folder, by its manifest. InvalidArgument if that does not state it; DataLoss
// or NotFound if there is no manifest that can be read.
absl::StatusOr<ModelShape> ModelOfStepFolder(const std::string& folder);

// Movable; const calls from any thread.
class WeightsReader {
 public:
  // Reads headers only. InvalidArgument naming the first tensor that `model` has and the folder
  // lacks or has in other dims, or that the folder has and `model` lacks; else as
  // HuggingFaceReader and CheckpointReader. REQUIRES: CheckModel holds.
  static absl::StatusOr<WeightsReader> Open(const std::string& folder, const ModelShape& model);

  // Fills `out` (row-major box) of the tensor. DataLoss if shards do not cover the box or are not
  // as they were saved. REQUIRES: `tensor` is one of Tensors(model), the box lies in it and `out`
  // has its size.
  absl::Status Read(const TensorSpec& tensor, absl::Span<const int64_t> begin,
                    absl::Span<const int64_t> end, absl::Span<float> out) const;

 private:
  using Reader = std::variant<HuggingFaceReader, CheckpointReader>;
  explicit WeightsReader(Reader reader) : reader_(std::move(reader)) {}

  Reader reader_;
};

}  // namespace weft
