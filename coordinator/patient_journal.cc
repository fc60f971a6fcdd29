#include "coordinator/patient_journal.h"

namespace weft {

absl::Status PatientJournal::Commit(int64_t now_ms) {
  if (waiting_.empty()) return absl::OkStatus();
  bool written = false;
  const auto append = [this] { return journal_->Append(waiting_); };
  const absl::Status status = patience_.Try(now_ms, waiting_.size(), append, &written);
  if (written) waiting_.clear();
  return status;
}

}  // namespace weft
