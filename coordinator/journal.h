// The journal: every fact that changed the job, in order, durable before anybody acts on it. The
// file and its format are described in proto/journal.proto. Used by one thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/record.h"
#include "coordinator/record_file.h"

namespace weft {

class Journal final {
 public:
  // Opens `path`, or makes it, and holds it alone until destruction. A journal of another version's
  // format is moved aside to `<path>.format-<version>[.<n>]`, and a new one made: the checkpoints
  // on the disk say where the run stands. FailedPrecondition: another process holds it. DataLoss:
  // it is damaged; names the place and the cure.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);

  // As Open, of the journal that lies in its run's folder. One whose newest submission is of
  // another run than `run_id` (empty: whichever it is), or of another folder, is moved aside, too,
  // to `<path>.of-another-folder[.<n>]`: the run folder was copied, and what the journal tells of
  // is to be done elsewhere, or was moved, and nothing is there any more.
  static absl::StatusOr<std::unique_ptr<Journal>> OpenInRunFolder(const std::string& path,
                                                                  const std::string& run_id);

  // The same of a journal that is there, to look at: as RecordFile::OpenToRead.
  static absl::StatusOr<std::unique_ptr<Journal>> OpenToRead(const std::string& path);

  // All facts, checked against their checksums, revisions 1, 2, 3... DataLoss as above. Asked for
  // once before anything is appended.
  absl::StatusOr<std::vector<StoredEvent>> Replay();

  // Returns where the journal that was in the way is now; empty: there was none.
  const std::string& moved_aside() const {
    return moved_aside_.empty() ? file_->moved_aside() : moved_aside_;
  }

  // Returns once all of these facts are on the disk, or none, after one wait for it. Their
  // revisions have to be the next ones. ResourceExhausted: the disk has no room; nothing has
  // changed, so the same facts may be appended later.
  absl::Status Append(absl::Span<const StoredEvent> facts);

 private:
  explicit Journal(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<RecordFile> file_;
  std::string moved_aside_;  // as of another folder
  // Facts that were read to know whose they are, until Replay hands them out.
  std::optional<std::vector<StoredEvent>> read_;
};

}  // namespace weft
