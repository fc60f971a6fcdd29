// A checkpoint is a folder `step-<N>` of safetensors shards with a manifest.json. It knows tensors,
// not ranks: each shard names ranges of global tensors, so any layout loads any checkpoint.
//
// Commit: shards go to `.stage.<generation>.<step>/`, each fsynced; when all are durable rank 0
// writes the manifest, fsyncs it and the folder, renames the folder and fsyncs the parent. A
// checkpoint exists iff its manifest does and every checksum in it verifies.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"

namespace weft {

// A box of a global tensor, with its values. State of the optimizer is stored as tensors of the
// parameter's dims named "optimizer.exp_avg.<name>" and "optimizer.exp_avg_sq.<name>".
struct BoxToSave {
  std::string name;
  std::vector<int64_t> dims;   // of the global tensor
  std::vector<int64_t> begin;  // of the box
  std::vector<int64_t> end;
  absl::Span<const float> values;
};

// What a manifest says of one shard file.
struct ShardRecord {
  std::string file;  // "rank-00003.safetensors"
  int64_t bytes = 0;
  std::string xxh3;  // 32 hex digits
};

struct Manifest {
  int format_version = 1;
  int64_t step = 0;
  int64_t generation = 0;
  int64_t next_sample = 0;  // global sample index: the data position
  std::string weft_version;
  std::string layout;  // for people only
  std::map<std::string, std::string> facts;  // fingerprints of data files, seed, spec hash: compared by the launcher
  std::vector<ShardRecord> shards;
};

std::string StageFolder(const std::string& folder, int64_t generation, int64_t step);
std::string StepFolder(const std::string& folder, int64_t step);
std::string ShardFileName(int rank);

// Creates the stage folder if needed, writes this rank's shard there, fsyncs file and folder.
absl::StatusOr<ShardRecord> WriteShard(const std::string& stage_folder, int rank,
                                       absl::Span<const BoxToSave> boxes);

// Rank 0: manifest into the stage folder, rename to step-<N>, fsync the parent. AlreadyExists is
// OK if the committed checkpoint of that step is identical in step (it is replaced atomically).
absl::Status CommitCheckpoint(const std::string& folder, const Manifest& manifest);

// Reads the manifest and checks it, and every shard's size and checksum. DataLoss names the file
// and what was found.
absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& step_folder);

struct FoundCheckpoint {
  std::string path;  // absolute step folder; empty: none
  Manifest manifest;
  std::vector<std::string> refused;  // "step-200: rank-00001.safetensors: ...", newest first
};
// The newest checkpoint in `folder` that verifies. A missing folder is no error: path is empty.
absl::StatusOr<FoundCheckpoint> NewestCheckpoint(const std::string& folder);

// Removes stage folders, and all but the newest `keep` (>= 2) committed checkpoints; each loses its
// manifest first. Returns what was removed.
absl::StatusOr<std::vector<std::string>> RemoveOldCheckpoints(const std::string& folder, int keep);
absl::Status RemoveStageFolders(const std::string& folder);

// Reads boxes of global tensors from a verified checkpoint, whatever boxes its shards hold.
class CheckpointReader {
 public:
  static absl::StatusOr<CheckpointReader> Open(const std::string& step_folder,
                                               const Manifest& manifest);
  CheckpointReader(CheckpointReader&&) = default;

  const Manifest& manifest() const { return manifest_; }
  bool Has(const std::string& name) const;
  // Fills `out` (row-major box). DataLoss if the shards do not cover the box, or if dims differ.
  absl::Status Read(const std::string& name, absl::Span<const int64_t> dims,
                    absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                    absl::Span<float> out) const;

 private:
  CheckpointReader() = default;
  struct Piece {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* stored = nullptr;
    std::vector<int64_t> dims, begin, end;
  };
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::vector<Piece>> pieces_;
};

}  // namespace weft
