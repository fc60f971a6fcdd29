// PatientJournal: a Journal whose disk may be full for a while. Facts that there is no room for
// wait in memory, in order, and are tried again; the driver asks whether it is behind before it
// does what a successor would have to know of. Used by one thread; time is an argument.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/disk_patience.h"
#include "coordinator/journal.h"

namespace weft {

class PatientJournal final {
 public:
  explicit PatientJournal(std::unique_ptr<Journal> journal) : journal_(std::move(journal)) {}

  absl::StatusOr<std::vector<StoredEvent>> Replay() { return journal_->Replay(); }

  // Keeps the fact for the next Commit.
  void Add(StoredEvent stored) { waiting_.push_back(std::move(stored)); }
  // Makes what was added durable, all of it after one wait for the disk, unless the journal is
  // behind when it returns. While it is, it tries now and then. Fails if it can never be written
  // any more, or if too much waits.
  absl::Status Commit(int64_t now_ms);

  // Makes one more fact durable at once, after those that wait; Unavailable if the disk does not
  // take it now: nothing of it is kept then. Other failures are those of Commit.
  absl::Status Write(const StoredEvent& stored, int64_t now_ms);

  // Returns why facts wait; OK: all are on the disk.
  const absl::Status& behind() const { return patience_.behind(); }

 private:
  const std::unique_ptr<Journal> journal_;
  std::vector<StoredEvent> waiting_;
  DiskPatience patience_{
      "training goes on, but until there is room nothing is saved and no lost rank is replaced"};
};

}  // namespace weft
