#include "launcher/slurm/accounting.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/run/progress.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

constexpr size_t kColumns = 5;
constexpr int64_t kKibi = 1024;

// sacct(1), TotalCPU: [DD-[HH:]]MM:SS[.mmm]. 0: it is none.
double CpuSeconds(absl::string_view text) {
  int64_t days = 0;
  const size_t dash = text.find('-');
  if (dash != absl::string_view::npos) {
    if (!absl::SimpleAtoi(text.substr(0, dash), &days)) return 0;
    text.remove_prefix(dash + 1);
  }
  double seconds = 0;
  for (const absl::string_view part : absl::StrSplit(text, ':')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number)) return 0;
    seconds = seconds * 60 + number;
  }
  return seconds + static_cast<double>(days) * 86400;
}

// "10240K", "1.5G", "0". 0: it is none.
int64_t Bytes(absl::string_view text) {
  double factor = 1;
  for (const char unit : {'K', 'M', 'G', 'T', 'P'}) {
    factor *= static_cast<double>(kKibi);
    if (text.empty() || text.back() != unit) continue;
    double number = 0;
    return absl::SimpleAtod(text.substr(0, text.size() - 1), &number)
               ? static_cast<int64_t>(number * factor)
               : 0;
  }
  int64_t bytes = 0;
  return absl::SimpleAtoi(text, &bytes) ? bytes : 0;
}

int64_t Number(absl::string_view text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

std::string EnergyText(int64_t joules) {
  if (joules >= 3600000) {
    return absl::StrFormat("%.1f kWh", static_cast<double>(joules) / 3600000);
  }
  return joules >= 1000 ? absl::StrCat(joules / 1000, " kJ") : absl::StrCat(joules, " J");
}

}  // namespace

std::vector<std::string> SacctArgv(const std::string& job_id) {
  return {"sacct", "--noheader", "--parsable2", "--jobs=" + job_id,
          "--format=JobID,ElapsedRaw,TotalCPU,MaxRSS,ConsumedEnergyRaw"};
}

// The job's own line has its time and the sum of its steps' CPU time; memory and energy are those
// of steps.
std::optional<SlurmAccounting> ParseAccounting(absl::string_view text, absl::string_view job_id) {
  std::optional<SlurmAccounting> figures;
  double of_steps_s = 0;
  int64_t energy_j = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() != kColumns) continue;
    const bool is_job = cells[0] == job_id;
    if (!is_job && !absl::StartsWith(cells[0], absl::StrCat(job_id, "."))) continue;
    if (!figures) figures = SlurmAccounting();
    if (is_job) {
      figures->elapsed_s = Number(cells[1]);
      figures->cpu_s = CpuSeconds(cells[2]);
      figures->energy_j = Number(cells[4]);
      continue;
    }
    of_steps_s += CpuSeconds(cells[2]);
    energy_j += Number(cells[4]);
    figures->max_rss_bytes = std::max(figures->max_rss_bytes, Bytes(cells[3]));
  }
  if (!figures) return std::nullopt;
  figures->cpu_s = std::max(figures->cpu_s, of_steps_s);
  figures->energy_j = std::max(figures->energy_j, energy_j);
  return figures;
}

std::string AccountingText(const SlurmAccounting& figures) {
  std::string text = absl::StrCat(DurationText(static_cast<double>(figures.elapsed_s)), " elapsed");
  if (figures.cpu_s > 0) absl::StrAppend(&text, ", ", DurationText(figures.cpu_s), " of CPU time");
  if (figures.max_rss_bytes > 0) {
    absl::StrAppend(&text, ", ", BytesText(figures.max_rss_bytes), " in the largest task");
  }
  if (figures.energy_j > 0) absl::StrAppend(&text, ", ", EnergyText(figures.energy_j));
  return text;
}

}  // namespace weft
