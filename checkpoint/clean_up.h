// Clean-up of a checkpoint folder: what a run no longer needs goes, of that run alone (folders.h
// says how a folder is known to be its own), and never while a newer attempt of the run is at work
// there. A checkpoint first loses its name, in one rename, so that what a crash leaves behind is no
// checkpoint; what cannot be removed yet (an NFS client that still reads it, a mount point) stays
// under its passing name for the next clean-up. Any thread; one at a time for a folder.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// A CleanUpRun says who cleans, and up to where it has come.
struct CleanUpRun {
  std::string run_id;
  int64_t generation = 0;
  int64_t step = 0;  // stages of this generation beyond it may be in use
};

struct CleanedUp {
  std::vector<std::string> removed;   // names of step folders, newest first
  std::vector<std::string> problems;  // "step-20: remove failed: Device or resource busy"
  bool stopped = false;               // a newer generation is at work: see problems
};

// Removes the run's stages that nobody writes any more, and all but its newest `keep` (>= 2)
// checkpoints, by generation and then by step. Damaged ones (by manifest and file sizes; contents
// are not read again) never count as kept, and go once they are older than those.
CleanedUp CleanUp(const std::string& folder, const CleanUpRun& run, int keep);

// The run's stages and whatever is on its way out. REQUIRES: no attempt of the run is alive.
CleanedUp RemoveStages(const std::string& folder, absl::string_view run_id);

// Moves the run's checkpoints into `<folder>/old-<n>`, with the names that they have; what is
// others' stays. Returns that folder; empty if the run has none here. Errors name what could not be
// moved. REQUIRES: no attempt of the run is alive.
absl::StatusOr<std::string> MoveCheckpointsAside(const std::string& folder,
                                                 absl::string_view run_id);

}  // namespace weft
