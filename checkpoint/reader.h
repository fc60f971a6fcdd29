// CheckpointReader: boxes of global tensors out of a checkpoint, whatever boxes its shards hold, so
// any layout loads any checkpoint. Shards are mapped; only the bytes of the boxes are touched.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace weft {

// Indices [begin, end) along each dim of a tensor.
struct Box {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  friend bool operator==(const Box&, const Box&) = default;
};

// How a shard names a box: "blocks.0.attn.q.weight[0:16,0:32]". Its global dims are in the shard's
// metadata, "blocks.0.attn.q.weight" -> "32,32".
std::string BoxName(absl::string_view tensor, const Box& box);

// `box` without `hole`, as boxes that do not overlap. REQUIRES: same number of dims.
std::vector<Box> WithoutBox(const Box& box, const Box& hole);

// Movable; const calls from any thread.
class CheckpointReader {
 public:
  // `manifest` is of this folder: values are worth what VerifyCheckpoint says of it. DataLoss if a
  // shard names a box that does not lie in its tensor, or if shards disagree about a tensor's dims.
  static absl::StatusOr<CheckpointReader> Open(const std::string& step_folder,
                                               const Manifest& manifest);
  CheckpointReader(CheckpointReader&&) = default;
  CheckpointReader& operator=(CheckpointReader&&) = default;

  const Manifest& manifest() const { return manifest_; }
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  // Fills `out` (row-major box). NotFound if there is no such tensor; DataLoss if the shards do not
  // cover the box, or if dims differ. REQUIRES: the box lies in dims, `out` has its size.
  absl::Status Read(const std::string& name, absl::Span<const int64_t> dims,
                    absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                    absl::Span<float> out) const;

 private:
  struct Piece {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* stored = nullptr;
    Box box;
  };
  struct GlobalTensor {
    std::vector<int64_t> dims;
    std::vector<Piece> pieces;
  };
  CheckpointReader() = default;
  absl::Status AddShard(const SafetensorsFile& file);

  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, GlobalTensor> tensors_;
};

}  // namespace weft
