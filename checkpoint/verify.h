// These functions decide whether a step folder holds the checkpoint that its manifest says, by
// sizes and checksums, and which step of a folder is the newest that does. Safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/manifest.h"

namespace weft {

// Returns OK if a shard of that size is there; DataLoss names what was found.
absl::Status CheckShardSize(const std::string& step_folder, const ShardRecord& shard);

// Reads the manifest and checks it, and every shard's size: all that can be checked without reading
// the shards. NotFound if there is no manifest; DataLoss names the file and what was found,
// relative to the step folder: "rank-00001.safetensors: 1023 bytes, manifest says 4096".
absl::StatusOr<Manifest> CheckManifest(const std::string& step_folder);

// Reads all of a shard. DataLoss if its checksum is not the manifest's.
absl::Status VerifyShard(const std::string& step_folder, const ShardRecord& shard);

// Both, for every shard.
absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& step_folder);

// Steps that `folder` has a committed checkpoint of, newest first; contents are not looked at. None
// if there is no such folder.
absl::StatusOr<std::vector<int64_t>> CommittedSteps(const std::string& folder);

struct FoundCheckpoint {
  std::string path;  // absolute step folder; empty: none
  Manifest manifest;
  std::vector<std::string> refused;  // "step-200: rank-00001.safetensors: ...", newest first
};
// The newest checkpoint in `folder` that verifies, whoever's it is. A missing folder is no error:
// path is empty.
absl::StatusOr<FoundCheckpoint> NewestCheckpoint(const std::string& folder);
// Takes the first of these steps whose checkpoint verifies.
absl::StatusOr<FoundCheckpoint> FirstThatVerifies(const std::string& folder,
                                                  absl::Span<const int64_t> steps);

}  // namespace weft
