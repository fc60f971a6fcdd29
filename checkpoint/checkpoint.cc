#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "plan/errors.h"
#include "process/failpoint.h"

namespace weft {
namespace {

// The stage itself lies in a folder that may be another user's, who may have put a link there; the
// folder of checkpoints does so where it lies in the run folder.
EntryPath StageEntry(const std::string& stage_folder, absl::string_view file,
                     const std::string& run_folder) {
  const EntryPath stage = EntryOf(stage_folder, run_folder);
  return {stage.folder, absl::StrCat(stage.name, "/", file)};
}

// Checks that this attempt may publish its step: nobody newer has, and what has the step's name now
// is the run's own. Runs that have no name of their own (tests') count as one.
absl::Status CheckMayPublish(const std::string& folder, const Manifest& manifest) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(folder));
  for (const int64_t step : steps) {
    const std::optional<Owner> owner = OwnerOf(StepFolder(folder, step));
    const bool own = owner && owner->run_id == manifest.run_id;
    if (own && owner->generation > manifest.generation) {
      return absl::AbortedError(absl::StrCat(folder, "/step-", step, " is of generation ",
                                             owner->generation, " of this run, this is generation ",
                                             manifest.generation, "; not committed"));
    }
    if (step == manifest.step && !own) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder, "/step-", step, " is ", OwnerText(owner),
                       "; move it away, or give this run a checkpoint.folder of its own"));
    }
  }
  return absl::OkStatus();
}

// Puts `stage` in the place of the step's folder, which may exist; what was there is left under a
// passing name.
absl::Status Publish(const std::string& folder, const Manifest& manifest,
                     const std::string& stage) {
  const std::string step_folder = StepFolder(folder, manifest.step);
  if (renameat2(AT_FDCWD, stage.c_str(), AT_FDCWD, step_folder.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST &&
      renameat2(AT_FDCWD, stage.c_str(), AT_FDCWD, step_folder.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS) return FileError(errno, stage, "rename");
  // A file system without these flags (NFS): the old checkpoint of this step goes first. A crash
  // in between costs this step's checkpoint, never the one before it.
  const std::string old = OldFolder(folder, manifest.run_id, manifest.generation, manifest.step);
  if (rename(step_folder.c_str(), old.c_str()) != 0 && errno != ENOENT) {
    return FileError(errno, step_folder, "rename");
  }
  if (rename(stage.c_str(), step_folder.c_str()) != 0) return FileError(errno, stage, "rename");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardRecord> WriteShard(const std::string& stage_folder, int rank,
                                       absl::Span<const BoxToSave> boxes,
                                       const std::string& run_folder) {
  std::vector<TensorToWrite> tensors;
  std::map<std::string, std::string> metadata;
  for (const BoxToSave& box : boxes) {
    TensorToWrite tensor{BoxName(box.name, {box.begin, box.end}), {}, box.values};
    for (size_t d = 0; d < box.begin.size(); ++d) tensor.dims.push_back(box.end[d] - box.begin[d]);
    tensors.push_back(std::move(tensor));
    metadata[box.name] = absl::StrJoin(box.dims, ",");
  }
  Failpoint("shard.begin");
  const EntryPath stage = EntryOf(stage_folder, run_folder);
  RETURN_IF_ERROR(MakeFolders(stage));
  const std::string file = ShardFileName(rank);
  ASSIGN_OR_RETURN(
      const WrittenFile written,
      WriteSafetensors(absl::StrCat(stage_folder, "/", file), tensors, metadata, stage.folder));
  RETURN_IF_ERROR(SyncFolder(stage_folder));
  Failpoint("shard.written");
  return ShardRecord{file, written.bytes, written.xxh3};
}

void RemoveShard(const std::string& stage_folder, int rank, const std::string& run_folder) {
  RemoveEntry(StageEntry(stage_folder, ShardFileName(rank), run_folder));
  RemoveEntry(StageEntry(stage_folder, kManifestFile, run_folder));  // of a commit that failed
}

absl::Status CommitCheckpoint(const std::string& folder, const Manifest& manifest) {
  const std::string stage =
      StageFolder(folder, manifest.run_id, manifest.generation, manifest.step);
  for (const ShardRecord& shard : manifest.shards) {
    const absl::Status staged = CheckShardSize(stage, shard);
    if (!staged.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOf(stage), ": ", staged.message(), "; not committed"));
    }
  }
  Failpoint("commit.begin");
  const std::string text = ManifestText(manifest);
  // A manifest that cannot be read back must not be published: an empty shard list, a path as a
  // file name.
  const auto reread = ParseManifest(text);
  if (!reread.ok()) return absl::InternalError(reread.status().message());
  ASSIGN_OR_RETURN(
      const auto file,
      DurableFile::Create(StageEntry(stage, kManifestFile, manifest.run_folder), std::ssize(text)));
  RETURN_IF_ERROR(file->Append(text));
  RETURN_IF_ERROR(file->Close());
  RETURN_IF_ERROR(SyncFolder(stage));
  Failpoint("commit.manifest");
  RETURN_IF_ERROR(CheckMayPublish(folder, manifest));
  Failpoint("commit.publish");
  RETURN_IF_ERROR(Publish(folder, manifest, stage));
  Failpoint("commit.published");
  return SyncFolder(folder);
}

}  // namespace weft
