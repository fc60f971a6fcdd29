// The clock of leases and deadlines between processes is CLOCK_BOOTTIME, which nobody sets, which
// all processes of a host share, and which goes on while the host sleeps.
#pragma once
#include <time.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace weft {

inline int64_t BootTimeMs() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);  // cannot fail on Linux
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// The kernel's name for its boot: CLOCK_BOOTTIME of one and of another have nothing in common.
// Empty where it is not told.
inline std::string BootId() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(stream, boot);
  return boot;
}

// The same as BootTimeMs in microseconds.
inline int64_t BootTimeUs() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000 + now.tv_nsec / 1000;
}

// The time of day, which people read and may set: no deadline depends on it.
inline int64_t UnixTimeMs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

}  // namespace weft
