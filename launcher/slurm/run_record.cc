#include "launcher/slurm/run_record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "data/whole_file.h"
#include "process/run_files.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr int kFormat = 1;
constexpr int64_t kMostBytes = 1 << 20;

// Leaves away what is none: nothing but a restart hangs on it.
std::vector<FailedHost> FailedHostsOf(const nlohmann::json& json) {
  std::vector<FailedHost> hosts;
  const auto list = json.find("failed_hosts");
  if (list == json.end() || !list->is_array()) return hosts;
  for (const nlohmann::json& each : *list) {
    if (!each.is_object() || !each.contains("host") || !each["host"].is_string()) continue;
    FailedHost host{.name = each["host"].get<std::string>()};
    const nlohmann::json times = each.value("failed_unix_s", nlohmann::json::array());
    if (!times.is_array()) continue;
    for (const nlohmann::json& time : times) {
      if (time.is_number_integer()) host.failed_unix_s.push_back(time.get<int64_t>());
    }
    const auto back = each.find("is_back"), reason = each.find("reason");
    host.is_back = back != each.end() && back->is_boolean() && back->get<bool>();
    if (reason != each.end() && reason->is_string()) host.reason = reason->get<std::string>();
    if (!host.failed_unix_s.empty()) hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace

std::string SlurmRunPath(const std::string& run_folder) {
  return run_folder + "/slurm.json";
}

std::string SlurmRunText(const SlurmRunRecord& record) {
  nlohmann::ordered_json json = {
      {"format_version", kFormat}, {"job_id", record.job_id}, {"idle_ends", record.idle_ends}};
  for (const FailedHost& host : record.failed_hosts) {
    json["failed_hosts"].push_back({{"host", host.name},
                                    {"failed_unix_s", host.failed_unix_s},
                                    {"is_back", host.is_back},
                                    {"reason", host.reason}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<SlurmRunRecord> ParseSlurmRun(absl::string_view text) {
  const nlohmann::json json = ParseJson(text, {.most_bytes = kMostBytes}).value_or(nullptr);
  if (!json.is_object() || json.value("format_version", nlohmann::json()) != kFormat) {
    return std::nullopt;
  }
  const auto id = json.find("job_id");
  const auto ends = json.find("idle_ends");
  if (id == json.end() || !id->is_string() || ends == json.end() || !ends->is_number_integer()) {
    return std::nullopt;
  }
  return SlurmRunRecord{id->get<std::string>(), ends->get<int>(), FailedHostsOf(json)};
}

std::optional<SlurmRunRecord> ReadSlurmRun(const std::string& run_folder) {
  const absl::StatusOr<std::string> text = ReadWholeFile(SlurmRunPath(run_folder), kMostBytes);
  return text.ok() ? ParseSlurmRun(*text) : std::nullopt;
}

absl::Status WriteSlurmRun(const std::string& run_folder, const SlurmRunRecord& record) {
  return WriteWhole(SlurmRunPath(run_folder), SlurmRunText(record));
}

SlurmRunRecord RecordFor(const std::string& run_folder, const std::string& job_id) {
  SlurmRunRecord record = ReadSlurmRun(run_folder).value_or(SlurmRunRecord{});
  if (record.job_id != job_id) record.idle_ends = 0;
  record.job_id = job_id;
  return record;
}

}  // namespace weft
