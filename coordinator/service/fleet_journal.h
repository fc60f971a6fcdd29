// FleetJournal: what has happened to the fleet and its jobs, in order, durable before anybody is
// told (proto/fleet_journal.proto). Where the disk is full for a while its records wait in memory.
// Used by one thread; time is an argument.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/disk_patience.h"
#include "coordinator/record_file.h"
#include "proto/fleet_journal.pb.h"

namespace weft {

class FleetJournal final {
 public:
  // The errors of RecordFile.
  static absl::StatusOr<std::unique_ptr<FleetJournal>> Open(const std::string& path);

  // The same of a journal that is there, to look at: as RecordFile::OpenToRead.
  static absl::StatusOr<std::unique_ptr<FleetJournal>> OpenToRead(const std::string& path);

  // Hands the snapshot to `restore`, if there is one, and all records after it to `take`, in order.
  // DataLoss as RecordFile's, or if one of them refuses.
  absl::Status Replay(
      const std::function<absl::Status(const proto::FleetSnapshot&, int64_t revision)>& restore,
      const std::function<absl::Status(const proto::FleetRecord&)>& take);
  // Returns how many records there are after the snapshot.
  int64_t records() const { return records_; }
  // The snapshot takes the place of all records up to its revision. REQUIRES: none waits.
  absl::Status Shorten(const proto::FleetSnapshot& snapshot, int64_t revision);

  // Keeps the record for the next Commit. Their revisions have to be the next ones.
  void Add(const proto::FleetRecord& record);
  // Makes what was added durable, all of it after one wait for the disk, unless the journal is
  // behind when it returns. Fails if it can never be written any more, or if too much waits.
  absl::Status Commit(int64_t now_ms);
  // Returns why records wait; OK: all are on the disk.
  const absl::Status& behind() const { return patience_.behind(); }

 private:
  explicit FleetJournal(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<RecordFile> file_;
  std::vector<RecordFile::Record> waiting_;
  int64_t records_ = 0;
  DiskPatience patience_{"jobs go on, but until there is room none is taken, changed or placed"};
};

}  // namespace weft
