// Slurm writes many nodes as one text, n[01-03,7],login, and a number for each of them as
// 4(x3),2. Both are taken apart here. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

inline constexpr int kMostNodes = 100000;

// The nodes in the order in which they are written, as `scontrol show hostnames` prints them.
// InvalidArgument, with the text, where a bracket stays open, a range is none or runs backwards, or
// there are more than kMostNodes.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view text);

// The numbers, one a node, of SLURM_JOB_CPUS_PER_NODE or SLURM_TASKS_PER_NODE. InvalidArgument as
// above.
absl::StatusOr<std::vector<int>> ExpandCounts(absl::string_view text);

}  // namespace weft
