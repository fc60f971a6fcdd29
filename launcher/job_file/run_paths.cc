#include "launcher/job_file/run_paths.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/spec/checkpoint_folder.h"

namespace weft {

std::string RunPaths::rank_log(int64_t generation, int rank) const {
  return absl::StrCat(logs(), "/generation-", generation, "/rank-", rank, ".log");
}

RunPaths PathsOf(const JobSpec& job) {
  return {.folder = absl::StrCat(job.output_dir, "/", job.name)};
}

std::string CheckpointFolder(const JobSpec& job) {
  return CheckpointFolder(job.checkpoint, PathsOf(job).folder);
}

std::string AbsolutePath(const std::string& path, const std::string& folder) {
  std::filesystem::path result(path);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || absl::StartsWith(path, "~/"))) {
    result = absl::StrCat(home, "/", path.substr(1));
  }
  if (result.is_relative()) result = std::filesystem::path(folder) / result;
  std::string text = result.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool IsWithin(absl::string_view inner, absl::string_view outer) {
  return inner == outer || (absl::StartsWith(inner, outer) && inner[outer.size()] == '/');
}

}  // namespace weft
