// The manifest of a checkpoint: which shard files belong to it, their sizes and checksums, what
// model its tensors make, and where training stood. Written last; a checkpoint exists iff its
// manifest does.
//
// Text form: a JSON object, one key per line, whose last line but one is
//   "manifest_xxh3": "<32 hex digits>"
// the xxh3-128 of every byte before that line. So each bit of the file is either hashed or compared
// with what it must be, and nothing is parsed before it is known to be whole. Pure: text in and
// out.
//
// Format 4 names the run that saved it, in its first lines (checkpoint/folders.h reads them alone).
// Format 3, which does not, and format 2, which does not state the model either, are read all the
// same.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/model.h"

namespace weft {

inline constexpr int kManifestFormatVersion = 4;
inline constexpr char kMathematicsFact[] = "job.";    // starts the name of such a fact
inline constexpr char kAcceptedFact[] = "accepted[";  // "accepted[0]": "after step 60: ..."
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr int64_t kMostManifestBytes = int64_t{1} << 28;  // a million shards take half of it

// A ShardRecord is what a manifest says of one shard file.
struct ShardRecord {
  std::string file;  // "rank-00003.safetensors"
  int64_t bytes = 0;
  std::string xxh3;  // 32 hex digits: xxh3-128 of the whole file
};

// A run carries these from step to step beside its tensors.
struct RunProgress {
  int64_t skipped_steps = 0;     // updates left out so far, because loss or norm was not finite
  int64_t skipped_in_a_row = 0;  // up to this step
  double loss_scale = 0;         // of the next step; 0: the run has none
  int64_t loss_scale_good_steps = 0;  // since the last overflow
  int64_t loss_scale_hysteresis = 0;  // overflows until it halves
};

struct Manifest {
  std::string run_id;      // of the run that saved it; empty: format 2 or 3
  std::string run_folder;  // that run's, then; for people
  int64_t step = 0;
  int64_t generation = 0;
  int64_t next_sample = 0;  // global sample index: the data position
  RunProgress progress;
  std::string weft_version;
  std::string layout;               // for people only
  std::optional<ModelShape> model;  // nullopt: format 2
  // Facts say what else the run was: fingerprints of data files, seed, batch. A resume compares
  // some of them; "job.<key>" is what a key of the job file was that a run cannot change.
  std::map<std::string, std::string> facts;
  std::vector<ShardRecord> shards;
};

std::string ManifestText(const Manifest& manifest);

// DataLoss "manifest.json: found, expected" if a byte was altered or is missing, or if a field is
// absent or out of range; also if format_version is a newer one. File names in it are plain names,
// its model keeps the rules of CheckModel.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace weft
