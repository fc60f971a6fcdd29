// The file slurm.json of a run folder says which job of Slurm's the run is, for whoever is not on
// its batch host, and how often it has ended there without a step to show for it.
#pragma once
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

struct SlurmRunRecord {
  std::string job_id = {};
  int idle_ends = 0;
  friend bool operator==(const SlurmRunRecord&, const SlurmRunRecord&) = default;
};

std::string SlurmRunPath(const std::string& run_folder);

std::string SlurmRunText(const SlurmRunRecord& record);
// nullopt if `text` is none, or of a newer format.
std::optional<SlurmRunRecord> ParseSlurmRun(absl::string_view text);

// Reads that of the run folder; nullopt if it has none.
std::optional<SlurmRunRecord> ReadSlurmRun(const std::string& run_folder);
absl::Status WriteSlurmRun(const std::string& run_folder, const SlurmRunRecord& record);

}  // namespace weft
