// The journal: every fact that changed the job, in order, durable before anybody acts on it. The
// file and its format are described in proto/journal.proto. Used by one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/record.h"

struct sqlite3;
struct sqlite3_stmt;

namespace weft {

class Journal final {
 public:
  // Opens `path`, or makes it, and holds it alone until destruction. A journal of another version's
  // format is moved aside to `<path>.format-<version>[.<n>]`, and a new one made: the checkpoints
  // on the disk say where the run stands. FailedPrecondition: another process holds it. DataLoss:
  // it is damaged; names the place and the cure.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // All facts, checked against their checksums, revisions 1, 2, 3... DataLoss as above.
  absl::StatusOr<std::vector<StoredEvent>> Replay();

  // Returns where the journal of another format is now; empty: there was none.
  const std::string& moved_aside() const { return moved_aside_; }

  // Returns once all of these facts are on the disk, or none, after one wait for it. Their
  // revisions have to be the next ones. ResourceExhausted: the disk has no room; nothing has
  // changed, so the same facts may be appended later.
  absl::Status Append(absl::Span<const StoredEvent> facts);

 private:
  explicit Journal(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<std::unique_ptr<Journal>> OpenAny(const std::string& path, int* found);
  absl::Status Prepare(int* found);
  // *found is the format if it is another version's.
  absl::Status CheckFormat(int* found);
  absl::Status Insert(const StoredEvent& stored);
  absl::Status Execute(const char* sql);
  absl::Status Error(const char* what) const;
  absl::Status Damaged(const std::string& what) const;

  const std::string path_;
  std::string moved_aside_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace weft
