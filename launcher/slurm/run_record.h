// The file slurm.json of a run folder says which job of Slurm's the run is, for whoever is not on
// its batch host, how often it has ended there without a step to show for it, and which nodes have
// failed it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/slurm/failed_hosts.h"

namespace weft {

struct SlurmRunRecord {
  std::string job_id = {};
  int idle_ends = 0;
  std::vector<FailedHost> failed_hosts = {};
  friend bool operator==(const SlurmRunRecord&, const SlurmRunRecord&) = default;
};

std::string SlurmRunPath(const std::string& run_folder);

std::string SlurmRunText(const SlurmRunRecord& record);
// nullopt if `text` is none, or of a newer format.
std::optional<SlurmRunRecord> ParseSlurmRun(absl::string_view text);

// Reads that of the run folder; nullopt if it has none.
std::optional<SlurmRunRecord> ReadSlurmRun(const std::string& run_folder);
absl::Status WriteSlurmRun(const std::string& run_folder, const SlurmRunRecord& record);

// Makes the record of the run folder that of this job of Slurm's, if it is another's: only the
// failed hosts are kept.
SlurmRunRecord RecordFor(const std::string& run_folder, const std::string& job_id);

}  // namespace weft
