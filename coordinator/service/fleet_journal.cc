#include "coordinator/service/fleet_journal.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kFormatVersion = 1;
constexpr char kCure[] =
    "move it, and the folder jobs beside it, away and start weftd again: jobs have to be submitted "
    "again, and go on from the newest checkpoint that verifies";

// Jobs are never lost to another format. There is no older one yet: who makes version 2 says here
// how a record of version 1 becomes one of it.
RecordFile::Format FleetFormat() {
  const auto as_it_is = [](int, absl::string_view body) -> absl::StatusOr<std::string> {
    return std::string(body);
  };
  return {.version = kFormatVersion, .upgrade_record = as_it_is, .upgrade_snapshot = as_it_is};
}

}  // namespace

absl::StatusOr<std::unique_ptr<FleetJournal>> FleetJournal::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file, RecordFile::Open(path, FleetFormat(), kCure));
  return std::unique_ptr<FleetJournal>(new FleetJournal(std::move(file)));
}

absl::StatusOr<std::unique_ptr<FleetJournal>> FleetJournal::OpenToRead(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file,
                   RecordFile::OpenToRead(path, FleetFormat(), kCure));
  return std::unique_ptr<FleetJournal>(new FleetJournal(std::move(file)));
}

absl::Status FleetJournal::Replay(
    const std::function<absl::Status(const proto::FleetSnapshot&, int64_t revision)>& restore,
    const std::function<absl::Status(const proto::FleetRecord&)>& take) {
  const auto read_snapshot = [&](int64_t revision, absl::string_view body) -> absl::Status {
    proto::FleetSnapshot snapshot;
    if (snapshot.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return restore(snapshot, revision);
    }
    return absl::DataLossError(absl::StrCat("snapshot ", revision, " is none of a fleet"));
  };
  const auto read = [&](int64_t revision, absl::string_view body) -> absl::Status {
    proto::FleetRecord record;
    if (!record.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
        record.revision() != revision) {
      return absl::DataLossError(absl::StrCat("record ", revision, " is no record of a fleet"));
    }
    ++records_;
    return take(record);
  };
  return file_->Replay(read_snapshot, read);
}

absl::Status FleetJournal::Shorten(const proto::FleetSnapshot& snapshot, int64_t revision) {
  RETURN_IF_ERROR(file_->Shorten({revision, snapshot.SerializeAsString()}));
  records_ = 0;
  return absl::OkStatus();
}

void FleetJournal::Add(const proto::FleetRecord& record) {
  waiting_.push_back({record.revision(), record.SerializeAsString()});
}

absl::Status FleetJournal::Commit(int64_t now_ms) {
  if (waiting_.empty()) return absl::OkStatus();
  bool written = false;
  const auto append = [this] { return file_->Append(waiting_); };
  const absl::Status status = patience_.Try(now_ms, waiting_.size(), append, &written);
  if (written) {
    records_ += static_cast<int64_t>(waiting_.size());
    waiting_.clear();
  }
  return status;
}

}  // namespace weft
