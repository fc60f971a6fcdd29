#include "data/whole_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPipePatience{8};
constexpr int kPollMs = 50;

absl::Status Wrong(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

absl::Status TooLarge(const std::string& name, int64_t most_bytes) {
  return Wrong(name, absl::StrCat("holds more than ", most_bytes,
                                  " bytes, the most that is read of such a file"));
}

absl::Status Unreadable(const std::string& name, int error) {
  return Wrong(name, absl::StrCat("cannot be read: ", std::strerror(error)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Unwritable(const std::string& name, int error) {
  return Wrong(name, absl::StrCat("cannot be written: ", std::strerror(error)));
}

// Returns why a file of this mode is not written to.
absl::Status CheckRegular(const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return absl::OkStatus();
  return Wrong(path, absl::StrCat("is ", S_ISDIR(mode) ? "a folder" : "a device, pipe or socket",
                                  "; name a file"));
}

// Reads to the end, unless `goes_on` has an error first: it is asked again and again.
absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, int64_t most_bytes,
                                      const std::function<absl::Status()>& goes_on) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    RETURN_IF_ERROR(goes_on());
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0) continue;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return Unreadable(name, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (std::ssize(text) > most_bytes) return TooLarge(name, most_bytes);
  }
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t most_bytes) {
  // Opening a pipe must not wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return Unreadable(path, errno);
  if (S_ISDIR(info.st_mode)) return Wrong(path, "is a folder; name a file");
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return Wrong(path, "is a device or a socket; name a file");
  }
  if (info.st_size > most_bytes) {
    return Wrong(path, absl::StrCat("holds ", info.st_size, " bytes, at most ", most_bytes,
                                    " are read of such a file"));
  }
  const Clock::time_point end = Clock::now() + kPipePatience;
  return ReadToEnd(file.get(), path, most_bytes, [&]() -> absl::Status {
    if (Clock::now() < end) return absl::OkStatus();
    return Wrong(path, absl::StrCat("is a pipe that its writer did not end within ",
                                    kPipePatience.count(), " s; name a file"));
  });
}

absl::StatusOr<std::string> ReadWholeStream(int fd, const std::string& name, int64_t most_bytes,
                                            const std::atomic<bool>& stop) {
  return ReadToEnd(fd, name, most_bytes, [&stop]() -> absl::Status {
    return stop ? absl::CancelledError("stopped") : absl::OkStatus();
  });
}

absl::Status CheckOutputFile(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) {
    RETURN_IF_ERROR(CheckRegular(path, info.st_mode));
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : Unwritable(path, errno);
  }
  if (errno != ENOENT) return Unwritable(path, errno);
  const size_t slash = path.rfind('/');
  const std::string folder = path.empty()                 ? ""
                             : slash == std::string::npos ? "."
                                                          : path.substr(0, slash + 1);
  return access(folder.c_str(), W_OK) == 0 ? absl::OkStatus() : Unwritable(path, errno);
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  RETURN_IF_ERROR(CheckOutputFile(path));
  // The path may become a pipe between the two looks: opening must not wait for its reader.
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return Unwritable(path, errno);
  RETURN_IF_ERROR(CheckRegular(path, info.st_mode));
  if (ftruncate(file.get(), 0) != 0) return Unwritable(path, errno);
  while (!text.empty()) {
    const ssize_t put = write(file.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Unwritable(path, errno);
    text.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

}  // namespace weft
