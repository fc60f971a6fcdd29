#include "coordinator/journal.h"

#include <sys/stat.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

constexpr int kFormatVersion = 6;
constexpr char kCure[] =
    "move it away and run the same command again: training resumes from the newest checkpoint that "
    "verifies";

// Paths are compared by what they lead to: a folder may be mounted twice, or be reached by a link.
bool IsSameFolder(const std::string& a, const std::string& b) {
  struct stat of_a = {}, of_b = {};
  if (stat(a.c_str(), &of_a) != 0 || stat(b.c_str(), &of_b) != 0) return false;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Null: nothing was submitted.
const Submitted* NewestSubmission(const std::vector<StoredEvent>& facts) {
  for (auto fact = facts.rbegin(); fact != facts.rend(); ++fact) {
    if (const auto* submitted = std::get_if<Submitted>(&fact->event)) return submitted;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::OpenInRunFolder(const std::string& path,
                                                                  const std::string& run_id) {
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, Open(path));
  ASSIGN_OR_RETURN(journal->read_, journal->Replay());
  const Submitted* const newest = NewestSubmission(*journal->read_);
  if (newest == nullptr) return journal;
  // Where the folder stands is looked at, too: the paths in the journal are those of then.
  const bool is_same_run = run_id.empty() || newest->run.id == run_id;
  if (is_same_run && IsSameFolder(newest->run_folder, EntryOf(path).folder)) return journal;
  journal.reset();
  ASSIGN_OR_RETURN(std::string aside, RecordFile::MoveAside(path, "of-another-folder"));
  ASSIGN_OR_RETURN(journal, Open(path));
  journal->moved_aside_ = std::move(aside);
  return journal;
}

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
  if (read_) {
    history = *std::exchange(read_, std::nullopt);
    return history;
  }
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
