#include "coordinator/journal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kFormatVersion = 6;
constexpr char kCure[] =
    "move it away and run the same command again: training resumes from the newest checkpoint that "
    "verifies";

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file,
                   RecordFile::Open(path, {.version = kFormatVersion}, kCure));
  return std::unique_ptr<Journal>(new Journal(std::move(file)));
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::OpenToRead(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file,
                   RecordFile::OpenToRead(path, {.version = kFormatVersion}, kCure));
  return std::unique_ptr<Journal>(new Journal(std::move(file)));
}

absl::StatusOr<std::vector<StoredEvent>> Journal::Replay() {
  std::vector<StoredEvent> history;
  const auto no_snapshot = [](int64_t, absl::string_view) {
    return absl::DataLossError("a job has no snapshot");
  };
  const auto read = [&](int64_t revision, absl::string_view body) -> absl::Status {
    proto::Record record;
    if (!record.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
        record.revision() != revision) {
      return absl::DataLossError(absl::StrCat("record ", revision, " is no record of a job"));
    }
    ASSIGN_OR_RETURN(StoredEvent stored, FromRecord(record));
    history.push_back(std::move(stored));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(file_->Replay(no_snapshot, read));
  return history;
}

absl::Status Journal::Append(absl::Span<const StoredEvent> facts) {
  std::vector<RecordFile::Record> records;
  records.reserve(facts.size());
  for (const StoredEvent& stored : facts) {
    records.push_back({stored.revision, ToRecord(stored).SerializeAsString()});
  }
  return file_->Append(records);
}

}  // namespace weft
