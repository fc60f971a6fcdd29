// Verbs for people who are on a login node while their run is on nodes of Slurm's: what `weft stop`
// and `weft ps` do there. Speaks to people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/slurm/slurm_job.h"

namespace weft {

// "19:03", of this host's clock.
std::string LocalTimeText(int64_t unix_s);

// "host h2 is left out until 19:03: REASON", for each that the run's next allocation is to do
// without.
std::vector<std::string> LeftOutLines(const std::string& run_folder);

// "job 12 is PENDING: Resources: it waits for free nodes", of the run folder's job; empty: there is
// none, or Slurm does not know it any more, or does not answer soon.
std::string SlurmStateOf(const std::string& run_folder);

// Slurm's job of the run folder, if it has one that is not over.
std::optional<SlurmJob> SlurmJobOf(const std::string& run_folder);

// Has the job saved and ended, or ended at once, and waits for it; one that has not begun is
// cancelled.
int StopSlurmJob(const SlurmJob& job, bool now);

struct SlurmJobsWish {
  bool all = false;   // those that are over, too, as long as Slurm remembers them
  std::string owner;  // empty: this user
  int64_t most = 0;   // the newest ones
};

// The jobs that weft has submitted, as a table, newest first. NotFound if there is no Slurm.
absl::StatusOr<std::string> SlurmJobsTable(const SlurmJobsWish& wish, int width);

}  // namespace weft
