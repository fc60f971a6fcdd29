// A checkpoint is a folder `step-<N>` of safetensors shards with a manifest.json. It knows tensors,
// not ranks: each shard names ranges of global tensors, so any layout loads any checkpoint.
//
// Commit: shards go to the run's stage folder (folders.h), each fsynced; when all are durable rank
// 0 writes the manifest, fsyncs it and the folder, renames the folder and fsyncs the parent. A
// checkpoint exists iff its manifest does and every checksum in it verifies. The disk is the truth:
// "latest" is found by looking, never stored.
//
// Fencing: a manifest names its run and the generation that wrote it. A commit that meets a newer
// generation of its run, or a step folder that is not its run's, stops itself and changes nothing;
// no lock is needed for that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
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

// Creates the stage folder if needed, writes this rank's shard there, fsyncs file and folder. A
// failure leaves no shard behind. What lies below `run_folder` is reached through no link that
// another user has put there; empty: that is said of the folder of checkpoints. REQUIRES: no box
// twice.
absl::StatusOr<ShardRecord> WriteShard(const std::string& stage_folder, int rank,
                                       absl::Span<const BoxToSave> boxes,
                                       const std::string& run_folder = "");

// Undoes WriteShard: removes this rank's shard. The folder stays, as another rank may be about to
// try again; it, and what cannot be removed, is the clean-up's.
void RemoveShard(const std::string& stage_folder, int rank, const std::string& run_folder = "");

// Rank 0, once all shards are durable: manifest into the stage folder, rename to step-<N>, fsync
// the parent. A checkpoint of the same step that the run has already is swapped for the new one in
// one rename, and left for the clean-up. FailedPrecondition if a shard is not staged with its size,
// or if the step's folder is not this run's; Aborted if a newer generation of the run has saved.
absl::Status CommitCheckpoint(const std::string& folder, const Manifest& manifest);

}  // namespace weft
