// Descriptor owns a file descriptor and closes it; pidfds too, through which a process is watched
// and signalled without ever meaning another one that got its number.
#pragma once
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <utility>

namespace weft {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// A pidfd of the process that has `pid` now; invalid if there is none.
inline Descriptor OpenPidfd(pid_t pid) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}
inline bool SignalPidfd(const Descriptor& pidfd, int signal) {
  return pidfd.valid() && syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

}  // namespace weft
