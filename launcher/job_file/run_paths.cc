#include "launcher/job_file/run_paths.h"

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

bool IsWithin(absl::string_view inner, absl::string_view outer) {
  return inner == outer || (absl::StartsWith(inner, outer) && inner[outer.size()] == '/');
}

}  // namespace weft
