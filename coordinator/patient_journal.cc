#include "coordinator/patient_journal.h"

#include "absl/strings/str_cat.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxWaiting = 100000;  // facts; a save of 10,000 ranks has as many
constexpr int64_t kTryEveryMs = 500;

}  // namespace

absl::Status PatientJournal::Append(const StoredEvent& stored, int64_t now_ms) {
  waiting_.push_back(stored);
  return Write(now_ms);
}

absl::Status PatientJournal::Retry(int64_t now_ms) {
  if (behind_.ok() || now_ms - tried_ms_ < kTryEveryMs) return absl::OkStatus();
  return Write(now_ms);
}

absl::Status PatientJournal::Write(int64_t now_ms) {
  while (!waiting_.empty()) {
    tried_ms_ = now_ms;
    const absl::Status written = journal_->Append(waiting_.front());
    if (written.ok()) {
      waiting_.pop_front();
      continue;
    }
    if (!absl::IsResourceExhausted(written) || waiting_.size() > kMaxWaiting) return written;
    if (behind_.ok()) {
      LogError(absl::StrCat(written.message(),
                            "; training goes on, but until there is room nothing is saved and no "
                            "lost rank is replaced"));
    }
    behind_ = written;
    return absl::OkStatus();
  }
  if (!behind_.ok()) LogInfo("there is room for the journal again");
  behind_ = absl::OkStatus();
  return absl::OkStatus();
}

}  // namespace weft
