#include "launcher/run/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/value_text.h"
#include "plan/schedule/step_part.h"
#include "text/json_lines.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;
constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr int kNewestRuns = 50;
constexpr int kWarmUpSteps = 2;
constexpr size_t kLeastSteps = 5;

// FNV-1a: the same on every machine and in every build.
uint64_t Digest(absl::string_view text) {
  uint64_t digest = 14695981039346656037U;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return digest;
}

// Parts are in the order in which they are shown.
std::vector<std::string> PartNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kStepParts; ++i) {
    names.emplace_back(WordOf(static_cast<StepPart>(i)));
  }
  return names;
}

Json ToJson(const LedgerEntry& entry) {
  Json terms = Json::object();
  for (const auto& [name, seconds] : entry.terms_s) terms[name] = seconds;
  Json parts = Json::object();
  for (const PartRecord& part : entry.parts) {
    parts[part.name] = {{"predicted_s", part.predicted_s}, {"measured_s", part.measured_s}};
  }
  return {{"format_version", kFormatVersion},
          {"unix_s", entry.unix_s},
          {"hardware", entry.hardware},
          {"weft", entry.weft},
          {"job", entry.job},
          {"model", entry.model},
          {"layout", entry.layout},
          {"workers", entry.workers},
          {"steps", entry.steps},
          {"predicted_step_s", entry.predicted_step_s},
          {"measured_step_s", entry.measured_step_s},
          {"terms_s", terms},
          {"parts", parts},
          {"planned_bytes", entry.planned_bytes},
          {"peak_bytes", entry.peak_bytes}};
}

std::optional<LedgerEntry> FromLine(const Json& json) {
  try {
    if (json.at("format_version") != kFormatVersion) return std::nullopt;
    LedgerEntry entry;
    json.at("unix_s").get_to(entry.unix_s);
    json.at("hardware").get_to(entry.hardware);
    json.at("weft").get_to(entry.weft);
    json.at("job").get_to(entry.job);
    json.at("model").get_to(entry.model);
    json.at("layout").get_to(entry.layout);
    json.at("workers").get_to(entry.workers);
    json.at("steps").get_to(entry.steps);
    json.at("predicted_step_s").get_to(entry.predicted_step_s);
    json.at("measured_step_s").get_to(entry.measured_step_s);
    for (const auto& [name, seconds] : json.at("terms_s").items()) {
      entry.terms_s.emplace_back(name, seconds.get<double>());
    }
    const Json parts = json.value("parts", Json::object());  // lines of before have none
    for (const std::string& name : PartNames()) {
      if (!parts.contains(name)) continue;
      const Json& part = parts.at(name);
      entry.parts.push_back(
          {name, part.at("predicted_s").get<double>(), part.at("measured_s").get<double>()});
    }
    json.at("planned_bytes").get_to(entry.planned_bytes);
    json.at("peak_bytes").get_to(entry.peak_bytes);
    return entry;
  } catch (const Json::exception&) {
    return std::nullopt;  // another version's
  }
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only reader
  return value == nullptr ? "" : value;
}

}  // namespace

std::string HardwareKey(const Cluster& cluster) {
  Cluster hardware = cluster;
  hardware.nodes = 1;
  hardware.slots_per_node = 1;
  hardware.price_per_device_hour = 0;  // the same machine, bought dearer
  return absl::StrCat(cluster.name, "/",
                      absl::Hex(Digest(LineText(ClusterTree(hardware))), absl::kZeroPad16));
}

std::string LedgerPathFrom(absl::string_view state_home, absl::string_view home) {
  if (absl::StartsWith(state_home, "/")) return absl::StrCat(state_home, "/weft/ledger.jsonl");
  if (absl::StartsWith(home, "/")) return absl::StrCat(home, "/.local/state/weft/ledger.jsonl");
  return "";
}

std::string LedgerPath() {
  return LedgerPathFrom(Variable("XDG_STATE_HOME"), Variable("HOME"));
}

absl::Status AppendToLedger(const std::string& path, const LedgerEntry& entry) {
  if (path.empty()) return absl::OkStatus();
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  const std::string line =
      ToJson(entry).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const bool ok = file >= 0 && write(file, line.data(), line.size()) == std::ssize(line);
  if (file >= 0) close(file);
  if (ok) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot be written; this run is not recorded there"));
}

std::vector<LedgerEntry> ReadLedger(const std::string& path, LinesLeftOut* left_out) {
  std::vector<LedgerEntry> entries;
  const LinesLeftOut unread =
      ForEachJsonLine(path, {.most_bytes = kReadBytes}, [&entries](const Json& line) {
        if (std::optional<LedgerEntry> entry = FromLine(line)) entries.push_back(*std::move(entry));
      });
  if (left_out != nullptr) *left_out = unread;
  return entries;
}

std::optional<RecordedError> ErrorOn(const std::vector<LedgerEntry>& entries,
                                     const std::string& hardware) {
  std::vector<double> errors;
  std::vector<double> sizes;
  std::vector<double> ratios;
  std::map<std::string, std::vector<double>> by_part;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->hardware != hardware || !(entry->measured_step_s > 0)) continue;
    ratios.push_back(entry->predicted_step_s / entry->measured_step_s);
    errors.push_back(ratios.back() - 1);
    sizes.push_back(std::abs(errors.back()));
    for (const PartRecord& part : entry->parts) {
      by_part[part.name].push_back((part.predicted_s - part.measured_s) / entry->measured_step_s);
    }
    if (errors.size() == kNewestRuns) break;
  }
  if (errors.empty()) return std::nullopt;
  RecordedError error{static_cast<int>(errors.size()),
                      Quantile(errors, 0.5),
                      Quantile(sizes, 0.9),
                      {},
                      RecordedErrorBar(ratios)};
  for (const std::string& name : PartNames()) {
    const auto found = by_part.find(name);
    if (found != by_part.end()) error.parts.emplace_back(name, Quantile(found->second, 0.5));
  }
  return error;
}

std::optional<RecordedError> RecordedErrorOn(const Cluster& cluster, LinesLeftOut* left_out) {
  return ErrorOn(ReadLedger(LedgerPath(), left_out), HardwareKey(cluster));
}

std::string RecordedErrorText(const std::optional<RecordedError>& error) {
  if (!error) return "";
  std::string text = absl::StrFormat(
      "recorded: %d %s on this profile, median error %+.1f %%, p90 %.1f %%", error->runs,
      error->runs == 1 ? "run" : "runs", 100 * error->median, 100 * error->p90);
  const char* separator = "\n  of the step: ";
  for (const auto& [name, share] : error->parts) {
    absl::StrAppendFormat(&text, "%s%s %+.1f %%", separator, name, 100 * share);
    separator = ", ";
  }
  return text;
}

std::optional<MeasuredSteps> MeasureSteps(const RunMetrics& metrics) {
  std::map<int64_t, int> seen;  // steps of each generation
  std::vector<double> seconds;
  std::map<std::string, std::vector<double>> by_part;
  metrics.ForEachLine([&](const Json& line) {
    const auto number_of = [&line](const std::string& key) -> std::optional<double> {
      const auto found = line.find(key);
      if (found == line.end() || !found->is_number()) return std::nullopt;
      return found->get<double>();
    };
    const std::optional<double> step_s = number_of("step_s");
    if (!step_s) return;
    const auto generation = line.find("generation");
    const bool has_it = generation != line.end() && generation->is_number_integer();
    if (++seen[has_it ? generation->get<int64_t>() : 0] <= kWarmUpSteps) return;
    seconds.push_back(*step_s);
    for (const std::string& name : PartNames()) {
      if (const auto part_s = number_of(name + "_s")) by_part[name].push_back(*part_s);
    }
  });
  if (seconds.size() < kLeastSteps) return std::nullopt;
  MeasuredSteps measured{std::ssize(seconds), Quantile(seconds, 0.5), {}};
  for (const std::string& name : PartNames()) {
    const auto found = by_part.find(name);
    if (found != by_part.end()) measured.parts_s.emplace_back(name, Quantile(found->second, 0.5));
  }
  return measured;
}

int64_t StepsWithoutLine(const RunMetrics& metrics, int64_t after_step, int64_t last_step) {
  const int64_t steps = std::max<int64_t>(last_step - after_step, 0);
  std::vector<bool> has_line(static_cast<size_t>(steps), false);
  std::optional<int64_t> first;
  const bool is_cut = metrics.ForEachLine([&](const Json& line) {
    const auto step = line.find("step");
    if (step == line.end() || !step->is_number_integer()) return;
    const auto number = step->get<int64_t>();
    if (!first) first = number;
    if (number > after_step && number <= last_step) {
      has_line[static_cast<size_t>(number - after_step - 1)] = true;
    }
  });
  const int64_t gone = is_cut && first ? std::clamp<int64_t>(*first - after_step - 1, 0, steps) : 0;
  return std::count(has_line.begin() + gone, has_line.end(), false);
}

std::string DifferenceText(const LedgerEntry& entry) {
  constexpr double kWorthSaying = 0.2;
  constexpr double kManyTimes = 3;  // from here on nobody reads percents
  const double difference_s = entry.measured_step_s - entry.predicted_step_s;
  if (std::abs(difference_s) <= kWorthSaying * entry.predicted_step_s) return "";
  const double times = entry.measured_step_s / entry.predicted_step_s;
  const double percent = 100 * std::abs(difference_s) / entry.predicted_step_s;
  std::string text = absl::StrFormat(
      "a step took %.4g s, %s the %.4g s predicted", entry.measured_step_s,
      times >= kManyTimes
          ? absl::StrFormat("%.*f times", times < 10 ? 1 : 0, times)
          : absl::StrFormat("%.0f %% %s than", percent, difference_s > 0 ? "more" : "less"),
      entry.predicted_step_s);
  const auto most = std::max_element(
      entry.parts.begin(), entry.parts.end(), [&](const PartRecord& a, const PartRecord& b) {
        const double sign = difference_s > 0 ? 1 : -1;
        return sign * (a.measured_s - a.predicted_s) < sign * (b.measured_s - b.predicted_s);
      });
  if (most == entry.parts.end()) return text;
  absl::StrAppendFormat(&text, "; the most of it in %s: %.4g s, %.4g s predicted", most->name,
                        most->measured_s, most->predicted_s);
  return text;
}

}  // namespace weft
