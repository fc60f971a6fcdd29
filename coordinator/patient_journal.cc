#include "coordinator/patient_journal.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::Status NotNow(const absl::Status& why) {
  return absl::UnavailableError(absl::StrCat(why.message(), "; ask again once it can be written"));
}

}  // namespace

absl::Status PatientJournal::Commit(int64_t now_ms) {
  if (waiting_.empty()) return absl::OkStatus();
  bool written = false;
  const auto append = [this] { return journal_->Append(waiting_); };
  const absl::Status status = patience_.Try(now_ms, waiting_.size(), append, &written);
  if (written) waiting_.clear();
  return status;
}

absl::Status PatientJournal::Write(const StoredEvent& stored, int64_t now_ms) {
  RETURN_IF_ERROR(Commit(now_ms));
  if (!behind().ok()) return NotNow(behind());
  const absl::Status written = journal_->Append({stored});
  return absl::IsResourceExhausted(written) ? NotNow(written) : written;
}

}  // namespace weft
