#include "coordinator/record_file.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/failpoint.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

// Jobs' texts are in it, and with them cluster.env. SQLite gives the files beside it the same
// mode. A link of another user in the way is refused here; what else does not succeed does not when
// SQLite opens it either.
absl::Status MakePrivate(const std::string& path) {
  for (const char* part : {"", "-wal", "-shm"}) {
    const bool is_main = *part == '\0';
    const std::string name = absl::StrCat(path, part);
    const OpenedEntry file =
        OpenEntry(EntryOf(name), is_main ? EntryUse::kLock : EntryUse::kRead, 0600);
    if (file.ok()) {
      fchmod(file.descriptor, 0600);
      close(file.descriptor);
    } else if (file.error == ELOOP || file.error == EPERM) {
      return absl::FailedPreconditionError(absl::StrCat("journal ", name, ": ", file.why));
    }
  }
  return absl::OkStatus();
}

// Finalises a statement when it goes out of scope.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  int Step() { return code_ == SQLITE_OK ? sqlite3_step(statement_) : code_; }
  sqlite3_stmt* get() { return statement_; }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// SQLite's integers are signed.
int64_t Checksum(const void* body, size_t bytes) {
  return static_cast<int64_t>(XXH3_64bits(body, bytes));
}

// Over a quota or a file size limit, or the disk has failed. What could not be synced may be tried
// again: SQLite writes the whole transaction anew, where it was, before it syncs again.
bool IsOfWriting(int extended_code) {
  return extended_code == SQLITE_IOERR_WRITE || extended_code == SQLITE_IOERR_FSYNC ||
         extended_code == SQLITE_IOERR_DIR_FSYNC || extended_code == SQLITE_IOERR_TRUNCATE;
}

std::string FreeName(const std::string& path) {
  constexpr int kMaxNames = 1000;
  std::string name = path;
  for (int n = 1; n < kMaxNames && access(name.c_str(), F_OK) == 0; ++n) {
    name = absl::StrCat(path, ".", n);
  }
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(const std::string& path,
                                                             const Format& format,
                                                             const std::string& cure) {
  int found = format.version;
  ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file, OpenAny(path, format, cure, &found));
  if (found == format.version) return file;
  file.reset();  // writes its log back into the one file
  ASSIGN_OR_RETURN(const std::string aside, MoveAside(path, absl::StrCat("format-", found)));
  ASSIGN_OR_RETURN(file, OpenAny(path, format, cure, &found));
  file->moved_aside_ = aside;
  return file;
}

absl::StatusOr<std::string> RecordFile::MoveAside(const std::string& path,
                                                  absl::string_view suffix) {
  std::string aside = FreeName(absl::StrCat(path, ".", suffix));
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("journal ", path, ": cannot be moved to ", aside, ": ", std::strerror(errno)));
  }
  for (const char* part : {"-wal", "-shm"}) {
    rename(absl::StrCat(path, part).c_str(), absl::StrCat(aside, part).c_str());
  }
  return aside;
}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::OpenToRead(const std::string& path,
                                                                   const Format& format,
                                                                   const std::string& cure) {
  std::unique_ptr<RecordFile> file(new RecordFile(path, cure));
  // A log that its writer left behind is read only by who may write it back.
  const int code = sqlite3_open_v2(path.c_str(), &file->database_,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return file->Error("cannot be opened");
  RETURN_IF_ERROR(file->Execute("PRAGMA locking_mode=EXCLUSIVE"));
  RETURN_IF_ERROR(file->Execute("BEGIN EXCLUSIVE"));
  RETURN_IF_ERROR(file->CheckPages());
  ASSIGN_OR_RETURN(const int version, file->ReadVersion());
  RETURN_IF_ERROR(file->Execute("ROLLBACK"));
  if (version == format.version) return file;
  return absl::FailedPreconditionError(
      absl::StrCat("journal ", path, ": has format ", version, ", this weft's is ", format.version,
                   "; a weftd that is started there would ",
                   !format.keeps()            ? "move it aside and go on from checkpoints"
                   : version > format.version ? "refuse it"
                                              : "upgrade it"));
}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::OpenAny(const std::string& path,
                                                                const Format& format,
                                                                const std::string& cure,
                                                                int* found) {
  std::unique_ptr<RecordFile> file(new RecordFile(path, cure));
  RETURN_IF_ERROR(MakePrivate(path));
  const int code =
      sqlite3_open_v2(path.c_str(), &file->database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return file->Error("cannot be opened");
  *found = format.version;
  RETURN_IF_ERROR(file->Prepare(format, found));
  return file;
}

RecordFile::~RecordFile() {
  sqlite3_finalize(insert_);
  sqlite3_close(database_);
}

absl::Status RecordFile::Prepare(const Format& format, int* found) {
  // Exclusive from the first access on: a second coordinator finds it busy. Readers have `weft
  // attach` instead.
  RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  Failpoint("journal.open");
  RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
  RETURN_IF_ERROR(Execute("CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT)"));
  for (const char* table : {"record", "snapshot"}) {
    RETURN_IF_ERROR(Execute(absl::StrCat("CREATE TABLE IF NOT EXISTS ", table,
                                         "(revision INTEGER PRIMARY KEY, checksum INTEGER NOT "
                                         "NULL, body BLOB NOT NULL)")
                                .c_str()));
  }
  RETURN_IF_ERROR(CheckFormat(format, found));
  RETURN_IF_ERROR(Execute("COMMIT"));
  if (*found != format.version) return absl::OkStatus();
  const char* sql = "INSERT INTO record(revision, checksum, body) VALUES(?, ?, ?)";
  if (sqlite3_prepare_v2(database_, sql, -1, &insert_, nullptr) != SQLITE_OK) {
    return Error("cannot be written");
  }
  return absl::OkStatus();
}

absl::Status RecordFile::CheckPages() {
  Statement quick_check(database_, "PRAGMA quick_check(1)");
  if (quick_check.Step() != SQLITE_ROW) return Error("cannot be checked");
  const char* result = reinterpret_cast<const char*>(sqlite3_column_text(quick_check.get(), 0));
  if (result == nullptr || std::string(result) != "ok") {
    return Damaged(result == nullptr ? "" : result);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RecordFile::ReadVersion() {
  Statement version(database_, "SELECT value FROM meta WHERE key='format_version'");
  const int code = version.Step();
  if (code == SQLITE_DONE) return 0;
  if (code != SQLITE_ROW) return Error("cannot be read");
  return sqlite3_column_int(version.get(), 0);
}

absl::Status RecordFile::CheckFormat(const Format& format, int* found) {
  RETURN_IF_ERROR(CheckPages());
  ASSIGN_OR_RETURN(const int is, ReadVersion());
  if (is == 0) {
    return Execute(
        absl::StrCat("INSERT INTO meta VALUES('format_version','", format.version, "')").c_str());
  }
  if (format.keeps() && is > format.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("journal ", path_, ": has format ", is, ", of a newer weft; this one reads ",
                     format.version, " at most; start the weft that wrote it, or a newer one"));
  }
  if (format.keeps() && is < format.version) return Upgrade(format, is);
  *found = is;
  return absl::OkStatus();
}

absl::Status RecordFile::Upgrade(const Format& format, int from) {
  RETURN_IF_ERROR(UpgradeTable("snapshot", format.upgrade_snapshot, from));
  RETURN_IF_ERROR(UpgradeTable("record", format.upgrade_record, from));
  return Execute(
      absl::StrCat("UPDATE meta SET value='", format.version, "' WHERE key='format_version'")
          .c_str());
}

absl::Status RecordFile::UpgradeTable(const std::string& table, const Format::Upgrade& upgrade,
                                      int from) {
  const std::string sql =
      absl::StrCat("UPDATE ", table, " SET checksum=?2, body=?3 WHERE revision=?1");
  Statement put(database_, sql.c_str());
  if (put.get() == nullptr) return Error("cannot be upgraded");
  const auto rewrite = [&](int64_t revision, absl::string_view body) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string upgraded, upgrade(from, body));
    return Insert(put.get(), {revision, upgraded});
  };
  return ReadTable(
      absl::StrCat("SELECT revision, checksum, body FROM ", table, " ORDER BY revision").c_str(),
      nullptr, rewrite);
}

absl::Status RecordFile::Replay(const Reader& on_snapshot, const Reader& on_record) {
  int64_t revision = 0;
  const auto first = [&](int64_t found, absl::string_view body) {
    revision = found;
    return on_snapshot(found, body);
  };
  Failpoint("journal.replay");
  RETURN_IF_ERROR(ReadTable("SELECT revision, checksum, body FROM snapshot", nullptr, first));
  return ReadTable("SELECT revision, checksum, body FROM record ORDER BY revision", &revision,
                   on_record);
}

// `revision`: of the row before; null: any will do.
absl::Status RecordFile::ReadTable(const char* sql, int64_t* revision, const Reader& reader) {
  Statement rows(database_, sql);
  int code = rows.Step();
  for (; code == SQLITE_ROW; code = rows.Step()) {
    const int64_t found = sqlite3_column_int64(rows.get(), 0);
    if (revision != nullptr && found != ++*revision) {
      return Damaged(absl::StrCat("record ", *revision, " is missing, ", found, " follows"));
    }
    const void* body = sqlite3_column_blob(rows.get(), 2);
    const auto bytes = static_cast<size_t>(sqlite3_column_bytes(rows.get(), 2));
    if (Checksum(body, bytes) != sqlite3_column_int64(rows.get(), 1)) {
      return Damaged(absl::StrCat("record ", found, " does not match its checksum"));
    }
    const absl::Status read = reader(found, {static_cast<const char*>(body), bytes});
    if (!read.ok()) return Damaged(absl::StrCat(read.message()));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error("cannot be read");
}

absl::Status RecordFile::Append(absl::Span<const Record> records) {
  Failpoint("journal.append");
  if (records.size() == 1) return Insert(insert_, records.front());  // a transaction of its own
  RETURN_IF_ERROR(Execute("BEGIN"));
  Failpoint("journal.group");
  return Commit(InsertAll(records));
}

absl::Status RecordFile::Shorten(const Record& snapshot) {
  Statement insert(database_, "INSERT INTO snapshot(revision, checksum, body) VALUES(?, ?, ?)");
  Statement forget(database_, "DELETE FROM record WHERE revision <= ?");
  if (insert.get() == nullptr || forget.get() == nullptr) return Error("cannot be written");
  sqlite3_bind_int64(forget.get(), 1, snapshot.revision);
  RETURN_IF_ERROR(Execute("BEGIN"));
  absl::Status status = Execute("DELETE FROM snapshot");
  if (status.ok()) status = Insert(insert.get(), snapshot);
  if (status.ok() && forget.Step() != SQLITE_DONE) status = Error("cannot be written");
  return Commit(status);
}

absl::Status RecordFile::InsertAll(absl::Span<const Record> records) {
  for (const Record& each : records) RETURN_IF_ERROR(Insert(insert_, each));
  return absl::OkStatus();
}

// Ends the open transaction: with all of it if `status` is OK so far, else with nothing.
absl::Status RecordFile::Commit(absl::Status status) {
  if (status.ok() && sqlite3_exec(database_, "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK) {
    status = Error("cannot be written");
  }
  // Some errors have rolled it back already.
  if (!status.ok() && sqlite3_get_autocommit(database_) == 0) {
    RETURN_IF_ERROR(Execute("ROLLBACK"));
  }
  return status;
}

absl::Status RecordFile::Insert(sqlite3_stmt* insert, const Record& record) {
  sqlite3_reset(insert);
  sqlite3_bind_int64(insert, 1, record.revision);
  sqlite3_bind_int64(insert, 2, Checksum(record.body.data(), record.body.size()));
  sqlite3_bind_blob64(insert, 3, record.body.data(), record.body.size(), SQLITE_STATIC);
  Failpoint("journal.insert");
  const int code = sqlite3_step(insert);
  sqlite3_reset(insert);
  Failpoint("journal.inserted");
  sqlite3_clear_bindings(insert);
  return code == SQLITE_DONE ? absl::OkStatus() : Error("cannot be written");
}

absl::Status RecordFile::Execute(const char* sql) {
  return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : Error("cannot be prepared");
}

absl::Status RecordFile::Error(const char* what) const {
  const std::string text =
      absl::StrCat("journal ", path_, ": ", what, ": ",
                   database_ == nullptr ? "out of memory" : sqlite3_errmsg(database_));
  switch (database_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database_) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(
          "journal ", path_, ": is held by another weftd; stop that one first, or try again"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Damaged(sqlite3_errmsg(database_));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_IOERR:
      return IsOfWriting(sqlite3_extended_errcode(database_)) ? absl::ResourceExhaustedError(text)
                                                              : absl::UnavailableError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::Status RecordFile::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat("journal ", path_, ": is damaged (", what, "); ", cure_));
}

}  // namespace weft
