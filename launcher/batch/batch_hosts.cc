#include "launcher/batch/batch_hosts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/slurm/node_list.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr int64_t kMostResourceBytes = int64_t{16} << 20;  // of 100,000 hosts
constexpr char kByHand[] = "; name the hosts by --hosts or --hostfile";

absl::Status CannotRead(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why, kByHand));
}

void AddOnce(absl::string_view host, std::vector<std::string>* hosts) {
  if (std::find(hosts->begin(), hosts->end(), host) == hosts->end()) hosts->emplace_back(host);
}

// "0-2,5": numbers and ranges of them.
absl::StatusOr<std::vector<int>> ParseRanks(absl::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ExpandNodeList(absl::StrCat("r[", text, "]")));
  std::vector<int> ranks;
  for (const std::string& name : names) {
    int rank = 0;
    if (!absl::SimpleAtoi(name.substr(1), &rank)) {
      return absl::InvalidArgumentError(absl::StrCat(text, " is no list of ranks"));
    }
    ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// The hosts of the file that a variable names.
absl::StatusOr<std::vector<std::string>> HostsOfFile(const BatchWorld& world,
                                                     absl::string_view variable, const char* path) {
  const std::string place = absl::StrCat(variable, ": ", path);
  const absl::StatusOr<std::string> text = world.read_file(path);
  if (!text.ok()) return CannotRead(place, text.status().message());
  absl::StatusOr<std::vector<std::string>> hosts = ParseHostLines(*text);
  if (!hosts.ok()) return CannotRead(place, hosts.status().message());
  return hosts;
}

absl::StatusOr<std::vector<std::string>> HostsOfPbs(const BatchWorld& world) {
  const char* const path = world.variable("PBS_NODEFILE");
  if (path == nullptr || *path == '\0') return CannotRead("PBS_NODEFILE", "is not set");
  return HostsOfFile(world, "PBS_NODEFILE", path);
}

// LSF may leave the variable out for a large job, and names a file.
absl::StatusOr<std::vector<std::string>> HostsOfLsf(const BatchWorld& world) {
  const char* const counts = world.variable("LSB_MCPU_HOSTS");
  if (counts != nullptr && *counts != '\0') {
    absl::StatusOr<std::vector<std::string>> hosts = ParseHostCounts(counts);
    if (hosts.ok()) return hosts;
    return CannotRead("LSB_MCPU_HOSTS", hosts.status().message());
  }
  const char* const path = world.variable("LSB_DJOB_HOSTFILE");
  if (path == nullptr || *path == '\0') {
    return CannotRead("LSB_MCPU_HOSTS", "and LSB_DJOB_HOSTFILE are not set");
  }
  return HostsOfFile(world, "LSB_DJOB_HOSTFILE", path);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseHostLines(absl::string_view text) {
  std::vector<std::string> hosts;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view host = absl::StripAsciiWhitespace(line);
    if (host.empty()) continue;
    if (host.find_first_of(" \t:,") != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", host, "\" is no name of a host alone on its line"));
    }
    AddOnce(host, &hosts);
  }
  if (hosts.empty()) return absl::InvalidArgumentError("there is no host in it");
  return hosts;
}

absl::StatusOr<std::vector<std::string>> ParseHostCounts(absl::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  std::vector<std::string> hosts;
  for (size_t i = 0; i < words.size(); i += 2) {
    int count = 0;
    if (i + 1 == words.size() || !absl::SimpleAtoi(words[i + 1], &count) || count < 1) {
      return absl::InvalidArgumentError(absl::StrCat("\"", words[i], "\" has no number behind it"));
    }
    AddOnce(words[i], &hosts);
  }
  if (hosts.empty()) return absl::InvalidArgumentError("there is no host in it");
  return hosts;
}

absl::StatusOr<BatchHosts> ParseResourceSet(absl::string_view json) {
  const absl::Status wrong = absl::InvalidArgumentError("is no resource set of version 1");
  const nlohmann::json set = ParseJson(json, {.most_bytes = kMostResourceBytes}).value_or(nullptr);
  if (!set.is_object() || set.value("version", nlohmann::json()) != 1) return wrong;
  const nlohmann::json execution = set.value("execution", nlohmann::json());
  if (!execution.is_object()) return wrong;
  BatchHosts found;
  for (const nlohmann::json& list : execution.value("nodelist", nlohmann::json::array())) {
    if (!list.is_string()) return wrong;
    ASSIGN_OR_RETURN(const std::vector<std::string> hosts, ExpandNodeList(list.get<std::string>()));
    found.hosts.insert(found.hosts.end(), hosts.begin(), hosts.end());
  }
  for (const nlohmann::json& lite : execution.value("R_lite", nlohmann::json::array())) {
    if (!lite.is_object() || !lite.contains("rank") || !lite["rank"].is_string()) return wrong;
    ASSIGN_OR_RETURN(const std::vector<int> ranks, ParseRanks(lite["rank"].get<std::string>()));
    found.flux_ranks.insert(found.flux_ranks.end(), ranks.begin(), ranks.end());
  }
  // The list of nodes is in the order of ranks (RFC 20).
  std::sort(found.flux_ranks.begin(), found.flux_ranks.end());
  found.flux_ranks.erase(std::unique(found.flux_ranks.begin(), found.flux_ranks.end()),
                         found.flux_ranks.end());
  if (found.hosts.empty() || found.hosts.size() != found.flux_ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", found.flux_ranks.size(), " ranks but ", found.hosts.size(), " hosts"));
  }
  return found;
}

absl::StatusOr<std::optional<BatchHosts>> FindBatchHosts(const BatchWorld& world) {
  const auto text = [&](const char* name) {
    const char* const value = world.variable(name);
    return std::string(value != nullptr ? value : "");
  };
  BatchHosts found;
  if (found.job_id = text("PBS_JOBID"); !found.job_id.empty()) {
    found.system = "PBS";
    ASSIGN_OR_RETURN(found.hosts, HostsOfPbs(world));
    return std::optional<BatchHosts>(std::move(found));
  }
  if (found.job_id = text("LSB_JOBID"); !found.job_id.empty()) {
    found.system = "LSF";
    ASSIGN_OR_RETURN(found.hosts, HostsOfLsf(world));
    return std::optional<BatchHosts>(std::move(found));
  }
  // It is the job whose hosts an instance of Flux, and so this process, has.
  const std::string flux = text("FLUX_ENCLOSING_ID");
  if (flux.empty() || text("FLUX_URI").empty()) return std::optional<BatchHosts>();
  const absl::StatusOr<std::string> resources = world.flux_resources();
  if (!resources.ok()) return CannotRead("flux resource R", resources.status().message());
  absl::StatusOr<BatchHosts> set = ParseResourceSet(*resources);
  if (!set.ok()) return CannotRead("flux resource R", set.status().message());
  set->system = "Flux";
  set->job_id = flux;
  return std::optional<BatchHosts>(*std::move(set));
}

}  // namespace weft
