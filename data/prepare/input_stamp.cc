#include "data/prepare/input_stamp.h"

#include <sys/stat.h>

#include <cerrno>

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

absl::StatusOr<InputStamp> StampInput(const TextInput& input) {
  InputStamp stamp{.input = input};
  struct stat info = {};
  if (input.path == kStandardInput) return stamp;
  if (stat(input.path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(input.path, ": cannot be read"));
  }
  if (!S_ISREG(info.st_mode)) return stamp;
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
    ASSIGN_OR_RETURN(InputStamp stamp, StampInput(input));
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
    const absl::StatusOr<InputStamp> now = StampInput(stamp.input);
    if (now.ok() && StampText(*now) == StampText(stamp)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(stamp.input.path, ": was ", now.ok() ? "written to" : "removed",
                     " while it was tokenised; start again when it is whole"));
  }
  return absl::OkStatus();
}

}  // namespace weft
