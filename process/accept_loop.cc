#include "process/accept_loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int kTickMs = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::Start(int listener, Handler on_connection,
                                                              Ticker each_second) {
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    const int why = errno;
    close(listener);
    return absl::UnavailableError(absl::ErrnoToStatus(why, "an eventfd").message());
  }
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop(listener, stop));
  loop->thread_ = std::thread([raw = loop.get(), handle = std::move(on_connection),
                               tick = std::move(each_second)] { raw->Run(handle, tick); });
  return loop;
}

AcceptLoop::~AcceptLoop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    CHECK(write(stop_, &one, sizeof(one)) == static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }
  close(listener_);
  close(stop_);
}

void AcceptLoop::Run(const Handler& on_connection, const Ticker& each_second) {
  for (int64_t ticked_ms = BootTimeMs();;) {
    pollfd fds[2] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
    const int ready = poll(fds, 2, each_second ? kTickMs : -1);
    if (each_second && BootTimeMs() - ticked_ms >= kTickMs) {
      ticked_ms = BootTimeMs();
      each_second();
    }
    if (ready <= 0) continue;  // EINTR, or nobody has come
    if (fds[1].revents != 0) return;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      on_connection(connection);
      continue;
    }
    if (errno != EMFILE && errno != ENFILE) continue;  // the peer went away
    LogWarning("no file descriptor is left for a new connection; raise ulimit -n");
    poll(&fds[1], 1, 100);
  }
}

}  // namespace weft
