// RunPaths says where a run keeps what: all of it follows from the job alone. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Paths of a run. All absolute.
struct RunPaths {
  std::string folder;
  std::string resolved() const { return folder + "/resolved.yaml"; }
  std::string metrics() const { return folder + "/metrics.jsonl"; }
  std::string events() const { return folder + "/events.jsonl"; }
  std::string logs() const { return folder + "/logs"; }
  std::string journal() const { return folder + "/journal.db"; }
  std::string lock() const { return folder + "/lock"; }
  std::string rank_log(int64_t generation, int rank) const;
};

RunPaths PathsOf(const JobSpec& job);

// Returns plan/spec/checkpoint_folder.h's folder, seen from the run folder that the job names.
std::string CheckpointFolder(const JobSpec& job);
// A path as a person writes it, absolute: "~/" is the home folder, what is relative is so to
// `folder`. One spelling of each, so without a slash at the end (`output_dir: .`): a run's id is
// made of it.
std::string AbsolutePath(const std::string& path, const std::string& folder);
// Says whether `inner` is `outer` or lies in it, as the paths are written.
bool IsWithin(absl::string_view inner, absl::string_view outer);

}  // namespace weft
