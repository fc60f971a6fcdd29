#include "launcher/slurm/run_record.h"

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "data/whole_file.h"
#include "launcher/run/run_folder.h"

namespace weft {
namespace {

constexpr int kFormat = 1;
constexpr int64_t kMostBytes = 65536;

}  // namespace

std::string SlurmRunPath(const std::string& run_folder) {
  return run_folder + "/slurm.json";
}

std::string SlurmRunText(const SlurmRunRecord& record) {
  const nlohmann::ordered_json json = {
      {"format_version", kFormat}, {"job_id", record.job_id}, {"idle_ends", record.idle_ends}};
  return json.dump() + "\n";
}

std::optional<SlurmRunRecord> ParseSlurmRun(absl::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object() || json.value("format_version", nlohmann::json()) != kFormat) {
    return std::nullopt;
  }
  const auto id = json.find("job_id");
  const auto ends = json.find("idle_ends");
  if (id == json.end() || !id->is_string() || ends == json.end() || !ends->is_number_integer()) {
    return std::nullopt;
  }
  return SlurmRunRecord{id->get<std::string>(), ends->get<int>()};
}

std::optional<SlurmRunRecord> ReadSlurmRun(const std::string& run_folder) {
  const absl::StatusOr<std::string> text = ReadWholeFile(SlurmRunPath(run_folder), kMostBytes);
  return text.ok() ? ParseSlurmRun(*text) : std::nullopt;
}

absl::Status WriteSlurmRun(const std::string& run_folder, const SlurmRunRecord& record) {
  return WriteWhole(SlurmRunPath(run_folder), SlurmRunText(record));
}

}  // namespace weft
