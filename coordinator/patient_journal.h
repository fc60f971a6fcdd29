// PatientJournal: a Journal whose disk may be full for a while. Facts that there is no room for
// wait in memory, in order, and are tried again; the driver asks whether it is behind before it
// does what a successor would have to know of. Used by one thread; time is an argument.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/journal.h"

namespace weft {

class PatientJournal final {
 public:
  explicit PatientJournal(std::unique_ptr<Journal> journal) : journal_(std::move(journal)) {}

  absl::StatusOr<std::vector<StoredEvent>> Replay() { return journal_->Replay(); }

  // Durable when it returns, unless the journal is behind then. Fails if it can never be written
  // any more, or if too much waits.
  absl::Status Append(const StoredEvent& stored, int64_t now_ms);
  // Writes what waits, if the last try is some time ago. Fails as Append.
  absl::Status Retry(int64_t now_ms);

  // Returns why facts wait; OK: all are on the disk.
  const absl::Status& behind() const { return behind_; }

 private:
  absl::Status Write(int64_t now_ms);

  const std::unique_ptr<Journal> journal_;
  std::deque<StoredEvent> waiting_;
  absl::Status behind_;
  int64_t tried_ms_ = 0;
};

}  // namespace weft
