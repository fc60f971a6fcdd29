// FindProcessRank finds who this process is, as its process manager says: the manager's rank is
// law. Pure.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

struct ProcessRank {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the workers of this host
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Rank from WEFT_RANK, PMIX_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, the first that is set; world
// size and local rank from the same managers. FailedPrecondition if there is none, InvalidArgument
// if one is no number or lies outside the world.
absl::StatusOr<ProcessRank> FindProcessRank(const Environment& environment);

}  // namespace weft
