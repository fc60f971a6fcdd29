#include "data/prepare/input_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/prepare/byte_source.h"
#include "plan/errors.h"
#include "xxhash.h"

namespace weft {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

absl::Status CannotRead(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot be read"));
}

absl::StatusOr<struct stat> StatOpened(const std::string& path) {
  struct stat info = {};
  // A pipe may be opened once, by whoever reads it.
  if (stat(path.c_str(), &info) != 0) return CannotRead(errno, path);
  if (!S_ISREG(info.st_mode)) return info;
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return CannotRead(errno, path);
  const int code = fstat(fd, &info);
  const int error = errno;
  close(fd);
  if (code != 0) return CannotRead(error, path);
  return info;
}

// Returns how long a change of now could leave the times that the file has. The kernel stamps files
// by its coarse clock; a server's may differ a little.
int64_t UnsettledNs(const struct stat& info) {
  constexpr int64_t kDifferenceNs = 10'000'000;
  constexpr int64_t kCoarseTickNs = 2'000'000'000;  // of FAT, of ext3
  timespec now = {};
  if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) return 0;
  const int64_t last = std::max(Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim));
  const bool is_coarse = info.st_mtim.tv_nsec == 0 && info.st_ctim.tv_nsec == 0;
  return last + (is_coarse ? kCoarseTickNs : kDifferenceNs) - Nanoseconds(now) + 1;
}

absl::StatusOr<InputStamp> StampInput(const TextInput& input, bool waits) {
  InputStamp stamp{.input = input};
  if (input.path == kStandardInput) return stamp;
  ASSIGN_OR_RETURN(struct stat info, StatOpened(input.path));
  if (!S_ISREG(info.st_mode)) return stamp;
  constexpr int kTries = 3;
  constexpr int64_t kMostNs = 3'000'000'000;  // more is a clock that is ahead
  stamp.is_settled = UnsettledNs(info) <= 0;
  for (int i = 0; i < kTries && waits && !stamp.is_settled && UnsettledNs(info) < kMostNs; ++i) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(UnsettledNs(info), 0)));
    ASSIGN_OR_RETURN(info, StatOpened(input.path));
    stamp.is_settled = UnsettledNs(info) <= 0;
  }
  stamp.is_regular = true;
  stamp.input.stored_bytes = info.st_size;
  stamp.changed_ns = Nanoseconds(info.st_mtim);
  stamp.touched_ns = Nanoseconds(info.st_ctim);
  stamp.inode = static_cast<int64_t>(info.st_ino);
  return stamp;
}

std::string StampText(const InputStamp& stamp) {
  return absl::StrCat(stamp.input.path, "\n", stamp.is_regular ? "file" : "stream", "\n",
                      stamp.input.stored_bytes, "\n", stamp.changed_ns, "\n", stamp.touched_ns,
                      "\n", stamp.inode, "\n");
}

}  // namespace

absl::StatusOr<std::vector<InputStamp>> StampInputs(const std::vector<TextInput>& inputs) {
  std::vector<InputStamp> stamps;
  for (const TextInput& input : inputs) {
    ASSIGN_OR_RETURN(InputStamp stamp, StampInput(input, /*waits=*/true));
    stamps.push_back(std::move(stamp));
  }
  return stamps;
}

std::string StampHash(const std::vector<InputStamp>& stamps) {
  std::string text;
  for (const InputStamp& stamp : stamps) absl::StrAppend(&text, StampText(stamp));
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::Status CheckUnchanged(const std::vector<InputStamp>& stamps, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    const InputStamp& stamp = stamps[static_cast<size_t>(i)];
    const absl::StatusOr<InputStamp> now = StampInput(stamp.input, /*waits=*/false);
    if (now.ok() && StampText(*now) == StampText(stamp)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(stamp.input.path, ": was ", now.ok() ? "written to" : "removed",
                     " while it was tokenised; start again when it is whole"));
  }
  return absl::OkStatus();
}

}  // namespace weft
