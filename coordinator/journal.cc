#include "coordinator/journal.h"

#include <fcntl.h>
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

namespace weft {
namespace {

constexpr int kFormatVersion = 6;

// The job's text is in it, and with that cluster.env. SQLite gives the files beside it the same
// mode. What does not succeed here does not when SQLite opens it either.
void MakePrivate(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  fchmod(file, 0600);
  close(file);
  for (const char* part : {"-wal", "-shm"}) chmod(absl::StrCat(path, part).c_str(), 0600);
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

std::string FreeName(const std::string& path) {
  constexpr int kMaxNames = 1000;
  std::string name = path;
  for (int n = 1; n < kMaxNames && access(name.c_str(), F_OK) == 0; ++n) {
    name = absl::StrCat(path, ".", n);
  }
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path) {
  int found = kFormatVersion;
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, OpenAny(path, &found));
  if (found == kFormatVersion) return journal;
  journal.reset();  // writes its log back into the one file
  const std::string aside = FreeName(absl::StrCat(path, ".format-", found));
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("journal ", path, ": has format ", found,
                     " and cannot be moved aside: ", std::strerror(errno)));
  }
  for (const char* part : {"-wal", "-shm"}) {
    rename(absl::StrCat(path, part).c_str(), absl::StrCat(aside, part).c_str());
  }
  ASSIGN_OR_RETURN(journal, OpenAny(path, &found));
  journal->moved_aside_ = aside;
  return journal;
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::OpenAny(const std::string& path, int* found) {
  std::unique_ptr<Journal> journal(new Journal(path));
  MakePrivate(path);
  const int code =
      sqlite3_open_v2(path.c_str(), &journal->database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return journal->Error("cannot be opened");
  *found = kFormatVersion;
  RETURN_IF_ERROR(journal->Prepare(found));
  return journal;
}

Journal::~Journal() {
  sqlite3_finalize(insert_);
  sqlite3_close(database_);
}

absl::Status Journal::Prepare(int* found) {
  // Exclusive from the first access on: a second coordinator finds it busy. Readers have `weft
  // attach` instead.
  RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
  RETURN_IF_ERROR(Execute("CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT)"));
  RETURN_IF_ERROR(
      Execute("CREATE TABLE IF NOT EXISTS record(revision INTEGER PRIMARY KEY, "
              "checksum INTEGER NOT NULL, body BLOB NOT NULL)"));
  RETURN_IF_ERROR(CheckFormat(found));
  RETURN_IF_ERROR(Execute("COMMIT"));
  if (*found != kFormatVersion) return absl::OkStatus();
  const char* sql = "INSERT INTO record(revision, checksum, body) VALUES(?, ?, ?)";
  if (sqlite3_prepare_v2(database_, sql, -1, &insert_, nullptr) != SQLITE_OK) {
    return Error("cannot be written");
  }
  return absl::OkStatus();
}

absl::Status Journal::CheckFormat(int* found) {
  Statement quick_check(database_, "PRAGMA quick_check(1)");
  if (quick_check.Step() != SQLITE_ROW) return Error("cannot be checked");
  const char* result = reinterpret_cast<const char*>(sqlite3_column_text(quick_check.get(), 0));
  if (result == nullptr || std::string(result) != "ok") {
    return Damaged(result == nullptr ? "" : result);
  }
  Statement version(database_, "SELECT value FROM meta WHERE key='format_version'");
  const int code = version.Step();
  if (code == SQLITE_DONE) {
    return Execute(
        absl::StrCat("INSERT INTO meta VALUES('format_version','", kFormatVersion, "')").c_str());
  }
  if (code != SQLITE_ROW) return Error("cannot be read");
  *found = sqlite3_column_int(version.get(), 0);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredEvent>> Journal::Replay() {
  std::vector<StoredEvent> history;
  Statement rows(database_, "SELECT revision, checksum, body FROM record ORDER BY revision");
  int code = rows.Step();
  for (; code == SQLITE_ROW; code = rows.Step()) {
    const int64_t revision = sqlite3_column_int64(rows.get(), 0);
    const int64_t expected = static_cast<int64_t>(history.size()) + 1;
    if (revision != expected) {
      return Damaged(absl::StrCat("record ", expected, " is missing, ", revision, " follows"));
    }
    const void* body = sqlite3_column_blob(rows.get(), 2);
    const int bytes = sqlite3_column_bytes(rows.get(), 2);
    proto::Record record;
    if (Checksum(body, static_cast<size_t>(bytes)) != sqlite3_column_int64(rows.get(), 1) ||
        !record.ParseFromArray(body, bytes) || record.revision() != revision) {
      return Damaged(absl::StrCat("record ", revision, " does not match its checksum"));
    }
    absl::StatusOr<StoredEvent> stored = FromRecord(record);
    if (!stored.ok()) return Damaged(absl::StrCat(stored.status().message()));
    history.push_back(*std::move(stored));
  }
  if (code != SQLITE_DONE) return Error("cannot be read");
  return history;
}

absl::Status Journal::Append(absl::Span<const StoredEvent> facts) {
  if (facts.size() == 1) return Insert(facts.front());  // a transaction of its own
  RETURN_IF_ERROR(Execute("BEGIN"));
  absl::Status status;
  for (const StoredEvent& stored : facts) {
    if (status.ok()) status = Insert(stored);
  }
  if (status.ok() && sqlite3_exec(database_, "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK) {
    status = Error("cannot be written");
  }
  // Some errors have rolled it back already.
  if (!status.ok() && sqlite3_get_autocommit(database_) == 0) {
    RETURN_IF_ERROR(Execute("ROLLBACK"));
  }
  return status;
}

absl::Status Journal::Insert(const StoredEvent& stored) {
  const std::string body = ToRecord(stored).SerializeAsString();
  sqlite3_reset(insert_);
  sqlite3_bind_int64(insert_, 1, stored.revision);
  sqlite3_bind_int64(insert_, 2, Checksum(body.data(), body.size()));
  sqlite3_bind_blob64(insert_, 3, body.data(), body.size(), SQLITE_STATIC);
  const int code = sqlite3_step(insert_);
  sqlite3_reset(insert_);
  sqlite3_clear_bindings(insert_);
  return code == SQLITE_DONE ? absl::OkStatus() : Error("cannot be written");
}

absl::Status Journal::Execute(const char* sql) {
  return sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : Error("cannot be prepared");
}

absl::Status Journal::Error(const char* what) const {
  const std::string text =
      absl::StrCat("journal ", path_, ": ", what, ": ",
                   database_ == nullptr ? "out of memory" : sqlite3_errmsg(database_));
  switch (database_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database_) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat("journal ", path_, ": is held by another weftd; stop that one first"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Damaged(sqlite3_errmsg(database_));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    case SQLITE_IOERR:
      // Over a quota or a file size limit; what failed to sync is another matter.
      return sqlite3_extended_errcode(database_) == SQLITE_IOERR_WRITE
                 ? absl::ResourceExhaustedError(text)
                 : absl::UnavailableError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::Status Journal::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat(
      "journal ", path_, ": is damaged (", what,
      "); move it away and run the same command again: training resumes from the newest checkpoint "
      "that verifies"));
}

}  // namespace weft
