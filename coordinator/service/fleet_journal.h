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

  // Hands all records to `take`, in order. DataLoss as RecordFile's, or if `take` refuses one.
  absl::Status Replay(const std::function<absl::Status(const proto::FleetRecord&)>& take);

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
  DiskPatience patience_{"jobs go on, but until there is room none is taken, changed or placed"};
};

}  // namespace weft
