#include "worker/train/trace.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

double Microseconds(Trace::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

Trace::Trace(int64_t step, int rank, const GridCoordinates& at) : step_(step), rank_(rank) {
  absl::StrAppendFormat(&events_,
                        R"({"name":"process_name","ph":"M","pid":%d,"tid":0,)"
                        R"("args":{"name":"rank %d: dp %d pp %d cp %d tp %d"}})",
                        rank, rank, at.dp, at.pp, at.cp, at.tp);
}

void Trace::Add(absl::Span<const Action> group, Clock::time_point begin, Clock::time_point end) {
  std::string name;
  // Reductions that start inside a pass take none of its time.
  const size_t shown = IsTransfer(group.front().op) ? group.size() : 1;
  for (const Action& action : group.first(shown)) {
    absl::StrAppend(&name, name.empty() ? "" : " ", ActionText(action));
  }
  const absl::string_view category = WordOf(PartOf(group.front().op));
  absl::StrAppendFormat(&events_,
                        ",\n"
                        R"({"name":"%s","cat":"%s","ph":"X","pid":%d,"tid":0,"ts":%.3f,)"
                        R"("dur":%.3f,"args":{"step":%d}})",
                        name, category, rank_, Microseconds(begin.time_since_epoch()),
                        Microseconds(end - begin), step_);
}

absl::Status Trace::Write(const std::string& folder) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = absl::StrCat(folder, "/rank-", rank_, ".json");
  std::ofstream file(path, std::ios::trunc);
  file << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" << events_ << "\n]}\n";
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace weft
