// The limits of this shell and its control group (ulimit, pids.max) that a run would meet only once
// its processes are up, and then in words of the kernel's or of a library's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace weft {

// nullopt: none.
struct ProcessLimits {
  std::optional<int64_t> address_bytes = {};  // ulimit -v
  std::optional<int64_t> file_bytes = {};     // ulimit -f
  std::optional<int64_t> tasks_left = {};     // processes and threads that may still be made
  std::string tasks_limit = {};               // who says so: "pids.max of the control group is 50"
};
ProcessLimits LimitsHere();

// A run takes so much at least: no limit below it can work.
struct RunNeeds {
  int ranks = 1;
  int64_t rank_bytes = 0;        // the plan's
  int64_t checkpoint_bytes = 0;  // of all ranks
};

// FailedPrecondition if a rank cannot map its memory. Pure.
absl::Status JudgeAddressSpace(const ProcessLimits& limits, const RunNeeds& needs);
// ResourceExhausted if there are not tasks enough, or if files may not be as large as a rank's part
// of a checkpoint. Pure.
absl::Status JudgeTasksAndFiles(const ProcessLimits& limits, const RunNeeds& needs);

}  // namespace weft
