#include "process/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "process/folder_entry.h"
#include "process/older_file.h"

namespace weft {
namespace {

constexpr size_t kMaxUnwritten = size_t{4} << 20;

bool EndsAmidALine(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path,
                                                         int64_t max_bytes) {
  const OpenedEntry file = OpenEntry(EntryOf(path), EntryUse::kAppend);
  if (!file.ok()) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", file.why));
  }
  std::unique_ptr<LineFile> lines(new LineFile(path, max_bytes, file.descriptor));
  if (EndsAmidALine(file.descriptor)) lines->unwritten_ = "\n";
  return lines;
}

LineFile::~LineFile() {
  close(file_);
}

absl::Status LineFile::Append(absl::string_view line) {
  if (unwritten_.size() < kMaxUnwritten) absl::StrAppend(&unwritten_, line, "\n");
  const bool failed_before = !trouble_.empty();
  const absl::Status written = Flush();
  return failed_before ? absl::OkStatus() : written;
}

void LineFile::KeepWithin() {
  const off_t bytes = max_bytes_ > 0 ? lseek(file_, 0, SEEK_END) : 0;
  const bool has_room = bytes + std::ssize(unwritten_) <= max_bytes_;
  if (bytes <= 0 || has_room || EndsAmidALine(file_)) return;
  const OpenedEntry begun = BeginNewFile(EntryOf(path_));
  if (!begun.ok()) return;
  close(file_);
  file_ = begun.descriptor;
}

absl::Status LineFile::Flush() {
  if (unwritten_.empty()) return absl::OkStatus();
  KeepWithin();
  const ssize_t written = write(file_, unwritten_.data(), unwritten_.size());
  const int error = errno;
  unwritten_.erase(0, static_cast<size_t>(std::max<ssize_t>(0, written)));
  if (unwritten_.empty()) {
    trouble_.clear();
    return absl::OkStatus();
  }
  trouble_ = absl::StrCat(
      path_, ": cannot append a line: ", written < 0 ? std::strerror(error) : "the disk is full",
      "; training goes on, lines are kept in memory until there is room");
  return absl::ResourceExhaustedError(trouble_);
}

}  // namespace weft
