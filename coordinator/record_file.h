// RecordFile: numbered records in an SQLite file, WAL, synchronous=FULL: table `record`(revision
// INTEGER PRIMARY KEY, checksum INTEGER, body BLOB), revisions without a gap, `checksum` the
// xxh3-64 of `body`; table `snapshot` of the same columns, of at most one row, which stands for all
// records up to its revision; table `meta`(key, value) with format_version. What the bodies say is
// the matter of whoever writes them. Used by one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct sqlite3;
struct sqlite3_stmt;

namespace weft {

class RecordFile final {
 public:
  struct Record {
    int64_t revision = 0;
    std::string body;
  };

  // A Format says how records are written, and what becomes of a file of another one. Whoever can
  // do without that has it moved aside, to `<path>.format-<version>[.<n>]`, and a new one made.
  // Else an older one is upgraded in place, whole or not at all, and a newer one is refused.
  struct Format {
    int version = 1;
    // Turns a body of an older format into one of this version. Both or neither; neither: a file of
    // another format is moved aside.
    using Upgrade = std::function<absl::StatusOr<std::string>(int from, absl::string_view body)>;
    Upgrade upgrade_record = nullptr;
    Upgrade upgrade_snapshot = nullptr;
    bool keeps() const { return upgrade_record != nullptr; }
  };

  // Opens `path`, or makes it, 0600, and holds it alone until destruction. `cure` follows the words
  // that say that it is damaged. FailedPrecondition: another process holds it, or it is of a newer
  // format and not to be moved aside. DataLoss: it is damaged.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(const std::string& path,
                                                          const Format& format,
                                                          const std::string& cure);
  // The same of a file that is there, for Replay alone: it is held, and nothing in it is changed.
  // FailedPrecondition also where it is of another format. Unavailable: there is none.
  static absl::StatusOr<std::unique_ptr<RecordFile>> OpenToRead(const std::string& path,
                                                                const Format& format,
                                                                const std::string& cure);
  // Renames a file that nobody holds, with its log, to `<path>.<suffix>[.<n>]`, and returns that.
  static absl::StatusOr<std::string> MoveAside(const std::string& path, absl::string_view suffix);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  using Reader = std::function<absl::Status(int64_t revision, absl::string_view body)>;
  // Reads the snapshot, if there is one, and all records after it, each against its checksum.
  // DataLoss: one is missing or altered, or its reader says that it makes no sense.
  absl::Status Replay(const Reader& on_snapshot, const Reader& on_record);

  // Returns where the file of another format is now; empty: there was none.
  const std::string& moved_aside() const { return moved_aside_; }

  // Returns once all of these are on the disk, or none, after one wait for it. Their revisions have
  // to be the next ones. ResourceExhausted: the disk has no room; nothing has changed, so the same
  // records may be appended later.
  absl::Status Append(absl::Span<const Record> records);
  // `snapshot` takes the place of all records up to its revision. Errors as Append's.
  absl::Status Shorten(const Record& snapshot);

 private:
  RecordFile(std::string path, std::string cure) : path_(std::move(path)), cure_(std::move(cure)) {}
  // *found is the version of a file that has to be moved aside.
  static absl::StatusOr<std::unique_ptr<RecordFile>> OpenAny(const std::string& path,
                                                             const Format& format,
                                                             const std::string& cure, int* found);
  absl::Status Prepare(const Format& format, int* found);
  absl::Status CheckFormat(const Format& format, int* found);
  absl::Status CheckPages();
  // The file's; 0: it says none yet.
  absl::StatusOr<int> ReadVersion();
  // REQUIRES: a transaction is open, the file's version is `from`.
  absl::Status Upgrade(const Format& format, int from);
  absl::Status UpgradeTable(const std::string& table, const Format::Upgrade& upgrade, int from);
  absl::Status ReadTable(const char* sql, int64_t* revision, const Reader& reader);
  absl::Status InsertAll(absl::Span<const Record> records);
  absl::Status Insert(sqlite3_stmt* insert, const Record& record);
  absl::Status Commit(absl::Status status);
  absl::Status Execute(const char* sql);
  absl::Status Error(const char* what) const;
  absl::Status Damaged(const std::string& what) const;

  const std::string path_;
  const std::string cure_;
  std::string moved_aside_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
};

}  // namespace weft
