// HuggingFaceReader: boxes of weft's tensors out of the weights of a Hugging Face directory, so any
// layout starts from one: model.safetensors, or the files that model.safetensors.index.json names,
// in F32, BF16 or F16. Files are mapped; only the bytes of the boxes are touched.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"
#include "plan/spec/model.h"

namespace weft {

// Movable; const calls from any thread.
class HuggingFaceReader {
 public:
  // NotFound if the folder holds no such files, DataLoss if one breaks a rule of its format,
  // InvalidArgument naming the first tensor that `model` has and the folder lacks, has in other
  // dims or in a type that is no float, or that the folder has and `model` lacks. What transformers
  // leaves out as well is passed over: buffers that are no weights, the head of a tied model.
  // Names may come without "transformer." or "model.". InvalidArgument, too, if `model` has
  // experts. REQUIRES: CheckModel holds.
  static absl::StatusOr<HuggingFaceReader> Open(const std::string& folder, const ModelShape& model);

  // Fills `out` (row-major box). REQUIRES: `name` is one of Tensors(model), the box lies in it and
  // `out` has its size.
  void Read(const std::string& name, absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
            absl::Span<float> out) const;

 private:
  struct Stored {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  struct Source {
    Stored stored;
    int64_t first_row = 0;  // of weft's tensor in what is stacked
    bool transposed = false;
    // Rows that follow each other, and from the first of these to that of the next (0: all do).
    int64_t run = 0, stride = 0;
  };
  HuggingFaceReader() = default;
  // The same of a source whose rows follow each other by heads.
  static void ReadByHead(const Source& source, absl::Span<const int64_t> begin,
                         absl::Span<const int64_t> end, absl::Span<float> out);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Source> sources_;  // by weft's name
};

}  // namespace weft
