#include "process/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "process/folder_entry.h"
#include "process/folder_users.h"

namespace weft {
namespace {

constexpr char kEvents[] = "events.jsonl";

absl::Status Failed(absl::string_view what, absl::string_view path, absl::string_view why) {
  return absl::UnknownError(absl::StrCat("cannot ", what, " ", path, ": ", why));
}

void GiveToOwnerOf(int folder, int file) {
  struct stat owner = {};
  if (fstat(folder, &owner) != 0 || owner.st_uid == geteuid()) return;
  if (fchown(file, owner.st_uid, owner.st_gid) == 0) return;
  if (fchown(file, static_cast<uid_t>(-1), owner.st_gid) == 0) fchmod(file, 0640);
}

}  // namespace

std::string EventsPath(const std::string& run_folder) {
  return EntryPath{run_folder, kEvents}.text();
}

RunFiles::RunFiles(const std::string& run_folder, std::function<void(const std::string&)> say,
                   std::optional<uid_t> reader)
    : resolved_(run_folder + "/resolved.yaml"),
      say_(std::move(say)),
      reader_(reader),
      events_(LineFile::Open(EntryPath{run_folder, kEvents}.text())) {
  Warn(events_.status());
}

RunFiles::~RunFiles() {
  if (events_.ok()) Warn((*events_)->Flush());
}

void RunFiles::Warn(const absl::Status& status) const {
  if (!status.ok()) say_(std::string(status.message()));
}

void RunFiles::WriteEvent(const std::string& line) {
  if (events_.ok() && !line.empty()) Warn((*events_)->Append(absl::StripSuffix(line, "\n")));
}

absl::Status RunFiles::WriteResolved(const std::string& text) {
  const absl::Status written = WriteWhole(resolved_, text, reader_);
  unwritten_ = written.ok() ? "" : text;
  Warn(written);
  return written;
}

void RunFiles::TryAgain() {
  if (!unwritten_.empty() && WriteWhole(resolved_, unwritten_, reader_).ok()) unwritten_.clear();
  if (events_.ok()) (*events_)->Flush().IgnoreError();
}

absl::Status WriteWhole(const std::string& path, const std::string& text,
                        std::optional<uid_t> reader) {
  const EntryPath entry = EntryOf(path);
  const EntryPath part = {entry.folder, entry.name + ".part"};
  const OpenedEntry folder = OpenFolderOf(entry);
  if (!folder.ok()) return Failed("write", path, folder.why);
  // A file that was left over may have another mode, or be a link elsewhere.
  unlinkat(folder.descriptor, part.name.c_str(), 0);
  const OpenedEntry file = OpenEntry(part, EntryUse::kCreate, 0600);
  absl::Status written = file.ok() ? absl::OkStatus() : Failed("create", part.text(), file.why);
  if (file.ok()) {
    GiveToOwnerOf(folder.descriptor, file.descriptor);
    if (reader) LetRead({*reader}, file.descriptor);
    const bool is_whole =
        write(file.descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        fsync(file.descriptor) == 0 &&
        renameat(folder.descriptor, part.name.c_str(), folder.descriptor, entry.name.c_str()) == 0;
    if (!is_whole) {
      written = Failed("write", path, std::strerror(errno));
      unlinkat(folder.descriptor, part.name.c_str(), 0);
    }
    close(file.descriptor);
  }
  close(folder.descriptor);
  return written;
}

}  // namespace weft
