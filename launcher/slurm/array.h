// An array is one job of Slurm's for several runs, which differ in the values of a few keys:
// `weft submit --array KEY=a,b --array KEY=c,d` is four. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Each is a text that --set takes: "optimizer.lr=1e-3".
using Sets = std::vector<std::string>;

inline constexpr int kMostTasks = 1000;  // Slurm's own limit (MaxArraySize) is 1001 by default

// The sets of each task, the last key's values changing first. Values stand apart by commas that
// are in no brackets: "data.train=[a,b],[c]" are two. InvalidArgument, one line, if a word is no
// such list, a key comes twice or is none that tasks of one job can differ in, or there are too
// many.
absl::StatusOr<std::vector<Sets>> ArrayTasks(const std::vector<std::string>& words);

// The sets of task `task` with its own run folder: `output_dir`/`name`/`name`-`task`.
Sets TaskSets(const Sets& sets, absl::string_view output_dir, absl::string_view name, int task);

// Returns the folder of a task of the array whose folder, `output_dir`/`name`, is `array`.
std::string TaskFolder(absl::string_view array, int task);

// sbatch's --dependency for "run after these have ended well", beside `other`, which may be empty.
// InvalidArgument if one is no number of a job of Slurm's: 12 or 12_3.
absl::StatusOr<std::string> AfterText(const std::vector<std::string>& jobs,
                                      absl::string_view other);

}  // namespace weft
