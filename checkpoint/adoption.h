// Adoption: the checkpoints in a run folder that was copied are the copy's from then on. Their
// manifests name another run, the one that the folder is a copy of, and say so until the copy's own
// name is written in its place; tensors stay as they are. One at a time for a folder.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct Adopted {
  std::vector<std::string> steps;     // names of step folders, newest first
  std::vector<std::string> problems;  // "step-20: manifest.json: ..."
};

// Makes the checkpoints of run `before` in `folder` those of `run_id`, whose run folder is
// `run_folder`, and removes what `before` was writing there when it was copied. May be done again
// after a crash. A damaged manifest stays as it is: nobody can say what it should be. REQUIRES:
// `folder` lies in `run_folder`, whose lock is held.
Adopted AdoptCheckpoints(const std::string& folder, absl::string_view before,
                         const std::string& run_id, const std::string& run_folder);

}  // namespace weft
