// DurableFile: a new file that is written once, front to back, hashed on the way, and fsynced; and
// the folder operations that make it stay. After a failed write or fsync the bytes are unknown, so
// the file is removed and the caller starts anew: fsync is never asked twice (Rebello et al.,
// ATC'20). One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "process/folder_entry.h"

struct XXH3_state_s;

namespace weft {

// xxh3-128 as 32 hex digits.
std::string HashBytes(absl::string_view bytes);
// Returns the same hash of a whole file. Errors name the path.
absl::StatusOr<std::string> HashFile(const std::string& path);

class DurableFile {
 public:
  // Creates or truncates the file and reserves `bytes` on the disk, so that a full one shows here.
  // ResourceExhausted: no space, no inode, over a quota or a file size limit. FailedPrecondition: a
  // link of another user is in the way, or what else folder_entry.h refuses.
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(const EntryPath& entry, int64_t bytes);
  ~DurableFile();  // removes the file unless Close() succeeded
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // fsync and close. DataLoss if another number of bytes was appended than was promised.
  absl::Status Close();

  int64_t bytes() const { return written_; }
  std::string hash() const;  // xxh3-128 of what was appended

 private:
  DurableFile() = default;
  EntryPath entry_;
  std::string path_;  // the same; empty: it was never opened
  int fd_ = -1;
  int64_t promised_ = 0;
  int64_t written_ = 0;
  bool complete_ = false;
  XXH3_state_s* hash_ = nullptr;
};

// Creates `folder` and its missing parents; each new name is fsynced into its parent.
absl::Status MakeFolders(const std::string& folder);
// The same, of which all below `entry.folder` is reached through no link of another user.
absl::Status MakeFolders(const EntryPath& entry);
absl::Status SyncFolder(const std::string& folder);

// Returns what errno says about `path`, as a Status that names it.
absl::Status FileError(int error, const std::string& path, absl::string_view action);
absl::Status EntryError(const OpenedEntry& entry, const std::string& path,
                        absl::string_view action);

}  // namespace weft
