#include "worker/process/process_rank.h"

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "plan/errors.h"
#include "process/rank_variables.h"

namespace weft {
namespace {

constexpr std::array<const char*, 3> kWorldSizeVariables = {"WEFT_WORLD_SIZE",
                                                            "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"};

// The first of `names` that is set, as a number; `missing` if none is.
absl::StatusOr<int> FirstNumber(const Environment& environment, absl::Span<const char* const> names,
                                int missing) {
  for (const char* name : names) {
    const std::optional<std::string> text = environment(name);
    if (!text) continue;
    int value = 0;
    if (absl::SimpleAtoi(*text, &value) && value >= 0) return value;
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": \"", *text, "\" is not a rank; the process manager has to set a number"));
  }
  return missing;
}

}  // namespace

absl::StatusOr<ProcessRank> FindProcessRank(const Environment& environment) {
  ProcessRank found;
  ASSIGN_OR_RETURN(found.rank, FirstNumber(environment, kRankVariables, /*missing=*/-1));
  if (found.rank < 0) {
    return absl::FailedPreconditionError(
        "no rank: none of WEFT_RANK, PMIX_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID is set; start "
        "workers with mpirun or srun, as weft run does");
  }
  ASSIGN_OR_RETURN(found.world_size, FirstNumber(environment, kWorldSizeVariables, /*missing=*/1));
  ASSIGN_OR_RETURN(found.local_rank, FirstNumber(environment, kLocalRankVariables, /*missing=*/0));
  if (found.rank >= found.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", found.rank, " of ", found.world_size,
                                                   " does not exist; the process manager's "
                                                   "variables contradict each other"));
  }
  return found;
}

}  // namespace weft
