#include "process/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

constexpr size_t kMaxUnwritten = size_t{4} << 20;

bool EndsAmidALine(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  const OpenedEntry file = OpenEntry(EntryOf(path), EntryUse::kAppend);
  if (!file.ok()) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", file.why));
  }
  std::unique_ptr<LineFile> lines(new LineFile(path, file.descriptor));
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

absl::Status LineFile::Flush() {
  if (unwritten_.empty()) return absl::OkStatus();
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
