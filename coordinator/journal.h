// The journal: every fact that changed the job, in order, durable before anybody acts on it. The
// file and its format are described in proto/journal.proto. Used by one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/record.h"

struct sqlite3;
struct sqlite3_stmt;

namespace weft {

class Journal final {
 public:
  // Opens `path`, or makes it, and holds it alone until destruction. FailedPrecondition: another
  // process holds it, or its format is another version's. DataLoss: it is damaged; names the place
  // and the cure.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // All facts, checked against their checksums, revisions 1, 2, 3... DataLoss as above.
  absl::StatusOr<std::vector<StoredEvent>> Replay();

  // Returns once the fact is on the disk. Its revision has to be the next one.
  absl::Status Append(const StoredEvent& stored);

 private:
  explicit Journal(std::string path) : path_(std::move(path)) {}
  absl::Status Prepare();
  absl::Status CheckFormat();
  absl::Status Execute(const char* sql);
  absl::Status Error(const char* what) const;
  absl::Status Damaged(const std::string& what) const;

  const std::string path_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace weft
