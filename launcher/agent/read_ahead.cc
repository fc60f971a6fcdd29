#include "launcher/agent/read_ahead.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/machine.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Linux's numbers (linux/ioprio.h): class idle of this thread.
void BecomeIdle() {
  constexpr int kWhoThread = 1;
  constexpr int kIdle = 3 << 13;
  syscall(SYS_ioprio_set, kWhoThread, 0, kIdle);
  const sched_param none = {};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int64_t ReadAhead(const std::string& folder, const std::function<bool()>& goes_on) {
  BecomeIdle();
  const int64_t most_bytes = AvailableMemoryBytes().value_or(0) / 2;
  std::vector<char> piece(static_cast<size_t>(kPieceBytes));
  int64_t sum = 0;
  for (const std::string& path : FilesIn(folder)) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) continue;  // it may have been replaced meanwhile
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED);
    for (int64_t at = 0; goes_on() && sum < most_bytes;) {
      const ssize_t got = pread(file.get(), piece.data(), piece.size(), at);
      if (got <= 0) break;
      at += got;
      sum += got;
    }
  }
  if (goes_on()) LogInfo(absl::StrCat("standing by: read ", sum, " bytes of ", folder));
  return sum;
}

}  // namespace weft
