// Slurm's accounting says what a job took: the output of sacct, read, and a line for the final
// report. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct SlurmAccounting {
  int64_t elapsed_s = 0;
  double cpu_s = 0;           // user and system, of all steps; 0: not recorded
  int64_t max_rss_bytes = 0;  // of the largest task; 0: not recorded
  int64_t energy_j = 0;       // 0: not recorded
  friend bool operator==(const SlurmAccounting&, const SlurmAccounting&) = default;
};

// The command that ParseAccounting reads the output of.
std::vector<std::string> SacctArgv(const std::string& job_id);

// nullopt: there is no line of the job.
std::optional<SlurmAccounting> ParseAccounting(absl::string_view text, absl::string_view job_id);

// "1:05 elapsed, 5:10 of CPU time, 317 MiB in the largest task, 12 kJ", without what is not
// recorded.
std::string AccountingText(const SlurmAccounting& figures);

}  // namespace weft
