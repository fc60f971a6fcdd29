#include "worker/train/trace.h"

#include <unistd.h>

#include <algorithm>

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

absl::Status Trace::Write(const EntryPath& folder) const {
  const int made = MakeEntryFolder(folder).descriptor;
  if (made >= 0) close(made);
  const EntryPath path = {folder.folder, absl::StrCat(folder.name, "/rank-", rank_, ".json")};
  const OpenedEntry file = OpenEntry(path, EntryUse::kRewrite);
  if (!file.ok()) {
    return absl::UnavailableError(absl::StrCat(path.text(), ": cannot be written: ", file.why));
  }
  const std::string text =
      absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", events_, "\n]}\n");
  size_t written = 0;
  for (ssize_t some = 1; written < text.size() && some > 0;) {
    some = write(file.descriptor, text.data() + written, text.size() - written);
    written += static_cast<size_t>(std::max<ssize_t>(0, some));
  }
  const bool is_whole = close(file.descriptor) == 0 && written == text.size();
  if (is_whole) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path.text(), ": cannot be written"));
}

}  // namespace weft
