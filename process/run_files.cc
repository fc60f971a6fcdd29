#include "process/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

absl::Status Failed(absl::string_view what, absl::string_view path) {
  return absl::UnknownError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

void GiveToOwnerOf(const std::string& folder, int file) {
  struct stat owner = {};
  if (stat(folder.c_str(), &owner) != 0 || owner.st_uid == geteuid()) return;
  if (fchown(file, owner.st_uid, owner.st_gid) == 0) return;
  if (fchown(file, static_cast<uid_t>(-1), owner.st_gid) == 0) fchmod(file, 0640);
}

}  // namespace

std::string EventsPath(const std::string& run_folder) {
  return run_folder + "/events.jsonl";
}

RunFiles::RunFiles(const std::string& run_folder, std::function<void(const std::string&)> say)
    : resolved_(run_folder + "/resolved.yaml"),
      say_(std::move(say)),
      events_(LineFile::Open(EventsPath(run_folder))) {
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
  const absl::Status written = WriteWhole(resolved_, text);
  unwritten_ = written.ok() ? "" : text;
  Warn(written);
  return written;
}

void RunFiles::TryAgain() {
  if (!unwritten_.empty() && WriteWhole(resolved_, unwritten_).ok()) unwritten_.clear();
  if (events_.ok()) (*events_)->Flush().IgnoreError();
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  unlink(part.c_str());  // one that was left over may have another mode, or be a link elsewhere
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("create", part);
  GiveToOwnerOf(std::filesystem::path(path).parent_path(), fd);
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool durable = written && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  if (!durable || rename(part.c_str(), path.c_str()) != 0) {
    const absl::Status failed = Failed("write", path);
    unlink(part.c_str());
    return failed;
  }
  return absl::OkStatus();
}

}  // namespace weft
