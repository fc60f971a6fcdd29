#include "coordinator/patient_journal.h"

#include "absl/strings/str_cat.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxWaiting = 100000;  // facts; a save of 10,000 ranks has as many
constexpr int64_t kTryEveryMs = 500;

}  // namespace

absl::Status PatientJournal::Commit(int64_t now_ms) {
  if (waiting_.empty()) return absl::OkStatus();
  if (!behind_.ok() && now_ms - tried_ms_ < kTryEveryMs) {
    return waiting_.size() > kMaxWaiting ? behind_ : absl::OkStatus();
  }
  tried_ms_ = now_ms;
  const absl::Status written = journal_->Append(waiting_);
  if (written.ok()) {
    waiting_.clear();
    if (!behind_.ok()) LogInfo("there is room for the journal again");
    behind_ = absl::OkStatus();
    return absl::OkStatus();
  }
  if (!absl::IsResourceExhausted(written) || waiting_.size() > kMaxWaiting) return written;
  if (behind_.ok()) {
    LogError(
        absl::StrCat(written.message(),
                     "; training goes on, but until there is room nothing is saved and no lost "
                     "rank is replaced"));
  }
  behind_ = written;
  return absl::OkStatus();
}

}  // namespace weft
