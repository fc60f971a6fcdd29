#include "checkpoint/verify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/folders.h"
#include "checkpoint/safetensors.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "open");
  std::string text;
  char buffer[1 << 14];
  ssize_t got = 0;
  while ((got = read(fd, buffer, sizeof buffer)) > 0 && std::ssize(text) <= kMostManifestBytes) {
    text.append(buffer, static_cast<size_t>(got));
  }
  const int error = errno;
  close(fd);
  if (got < 0) return FileError(error, path, "read");
  return text;
}

}  // namespace

absl::Status CheckShardSize(const std::string& step_folder, const ShardRecord& shard) {
  struct stat info = {};
  if (stat(absl::StrCat(step_folder, "/", shard.file).c_str(), &info) != 0) {
    return absl::DataLossError(
        absl::StrCat(shard.file, ": missing, manifest says ", shard.bytes, " bytes"));
  }
  if (!S_ISREG(info.st_mode) || info.st_size != shard.bytes) {
    return absl::DataLossError(
        absl::StrCat(shard.file, ": ", info.st_size, " bytes, manifest says ", shard.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> CheckManifest(const std::string& step_folder) {
  const auto text = ReadSmallFile(absl::StrCat(step_folder, "/", kManifestFile));
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(kManifestFile, ": missing, so this is not a checkpoint"));
  }
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(*text));
  const auto step = StepOf(NameOf(step_folder));
  if (step && *step != manifest.step) {
    return absl::DataLossError(absl::StrCat(kManifestFile, ": found step ", manifest.step,
                                            ", expected ", *step, " as its folder says"));
  }
  for (const ShardRecord& shard : manifest.shards) {
    RETURN_IF_ERROR(CheckShardSize(step_folder, shard));
  }
  return manifest;
}

absl::Status VerifyShard(const std::string& step_folder, const ShardRecord& shard) {
  ASSIGN_OR_RETURN(const std::string hash, HashFile(absl::StrCat(step_folder, "/", shard.file)));
  if (hash == shard.xxh3) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(shard.file, ": xxh3 ", hash, ", manifest says ", shard.xxh3));
}

// Several at once: one stream of reads does not fill a disk, less so a parallel file system.
absl::StatusOr<Manifest> VerifyCheckpoint(const std::string& step_folder) {
  constexpr size_t kStreams = 8;
  ASSIGN_OR_RETURN(Manifest manifest, CheckManifest(step_folder));
  const std::vector<ShardRecord>& shards = manifest.shards;
  std::vector<absl::Status> verdicts(shards.size());
  std::atomic<size_t> next = 0;
  const auto verify = [&] {
    for (size_t i = next++; i < shards.size(); i = next++) {
      verdicts[i] = VerifyShard(step_folder, shards[i]);
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < std::min(kStreams, shards.size())) others.emplace_back(verify);
    } catch (const std::system_error&) {
      // No more threads for us here: those that there are do it.
    }
    verify();
  }
  for (const absl::Status& verdict : verdicts) RETURN_IF_ERROR(verdict);
  return manifest;
}

absl::StatusOr<std::vector<int64_t>> CommittedSteps(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<int64_t> steps, StepsIn(folder));
  const auto is_none = [&](int64_t step) { return !IsStepFolder(StepFolder(folder, step)); };
  steps.erase(std::remove_if(steps.begin(), steps.end(), is_none), steps.end());
  return steps;
}

absl::StatusOr<FoundCheckpoint> NewestCheckpoint(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(folder));
  return FirstThatVerifies(folder, steps);
}

absl::StatusOr<FoundCheckpoint> FirstThatVerifies(const std::string& folder,
                                                  absl::Span<const int64_t> steps) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(folder, error).string();
  if (error) return FileError(error.value(), folder, "making the path absolute");
  FoundCheckpoint found;
  for (const int64_t step : steps) {
    const std::string path = StepFolder(absolute, step);
    auto manifest = VerifyCheckpoint(path);
    if (manifest.ok()) {
      found.path = path;
      found.manifest = *std::move(manifest);
      return found;
    }
    found.refused.push_back(absl::StrCat(NameOf(path), ": ", manifest.status().message()));
  }
  return found;
}

}  // namespace weft
