// CheckpointReader: boxes of global tensors out of a checkpoint, whatever boxes its shards hold, so
// any layout loads any checkpoint. Shards are mapped; a shard is verified as a whole before the
// first of its bytes is given out, and one that holds nothing that is asked for is not read.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
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

// Returns a box's name in a shard: "blocks.0.attn.q.weight[0:16,0:32]". Its global dims are in the
// shard's metadata, "blocks.0.attn.q.weight" -> "32,32".
std::string BoxName(absl::string_view tensor, const Box& box);

// `box` without `hole`, as boxes that do not overlap. REQUIRES: same number of dims.
std::vector<Box> WithoutBox(const Box& box, const Box& hole);

// Movable; const calls from any thread.
class CheckpointReader {
 public:
  // `manifest` is of this folder (CheckManifest). DataLoss if a shard names a box that does not lie
  // in its tensor, or if shards disagree about a tensor's dims; by its checksum where that tells.
  static absl::StatusOr<CheckpointReader> Open(const std::string& step_folder,
                                               const Manifest& manifest);
  CheckpointReader(CheckpointReader&&) = default;
  CheckpointReader& operator=(CheckpointReader&&) = default;

  const Manifest& manifest() const { return manifest_; }
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  // Fills `out` (row-major box). NotFound if there is no such tensor; DataLoss if the shards do not
  // cover the box, if dims differ, or if a shard's bytes are not those that were saved. REQUIRES:
  // the box lies in dims, `out` has its size.
  absl::Status Read(const std::string& name, absl::Span<const int64_t> dims,
                    absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                    absl::Span<float> out) const;

 private:
  struct Shard {
    ShardRecord record;
    std::unique_ptr<SafetensorsFile> file;
    std::once_flag once;  // sets the next
    absl::Status verified;
  };
  struct Piece {
    Shard* shard = nullptr;
    const StoredTensor* stored = nullptr;
    Box box;
  };
  struct GlobalTensor {
    std::vector<int64_t> dims;
    std::vector<Piece> pieces;
  };
  CheckpointReader() = default;
  absl::Status OpenShard(const std::string& path, Shard* shard);
  absl::Status AddBoxes(Shard* shard);
  absl::Status Verify(Shard* shard) const;

  std::string step_folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<std::string, GlobalTensor> tensors_;
};

}  // namespace weft
