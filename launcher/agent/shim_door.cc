#include "launcher/agent/shim_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/log.h"

namespace weft {
namespace {

// Rounds of one call; what is left then is taken by the next. A connection that cannot be accepted
// for want of descriptors would otherwise keep it for ever.
constexpr int kMostRounds = 16;

absl::Status SocketError(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("socket ", path));
}

// The process at the other end; 0: it is not that user's.
pid_t PeerOf(int connection, uid_t user) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return 0;
  if (peer.uid == user) return peer.pid;
  LogWarning(absl::StrCat("refused a shim of user ", peer.uid, ", process ", peer.pid));
  return 0;
}

// One packet with the descriptor that came beside it, if one did. Nothing to read: errno EAGAIN. A
// packet that is too long comes as an error.
ssize_t Receive(int connection, std::string& text, Descriptor* beside) {
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(connection, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = got >= 0 ? CMSG_FIRSTHDR(&packet) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    *beside = Descriptor(descriptor);
  }
  if (got >= 0 && (packet.msg_flags & MSG_TRUNC) != 0) {
    errno = EMSGSIZE;
    return -1;
  }
  return got;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShimDoor>> ShimDoor::Open(const std::string& path,
                                                         std::optional<ProcessUser> user) {
  std::unique_ptr<ShimDoor> door(new ShimDoor(path, std::move(user)));
  RETURN_IF_ERROR(door->Listen());
  return door;
}

absl::Status ShimDoor::Listen() {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket ", path_, ": the path is too long"));
  }
  path_.copy(address.sun_path, path_.size());
  listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!listener_.valid() || !epoll_.valid()) return SocketError(path_);
  // Nobody can connect before listen(), so there is no moment at which the mode is another one.
  const auto* bound = reinterpret_cast<const sockaddr*>(&address);
  epoll_event event = {.events = EPOLLIN, .data = {.fd = listener_.get()}};
  if (bind(listener_.get(), bound, sizeof(address)) != 0 ||
      chmod(path_.c_str(), user_ ? 0666 : 0600) != 0 || listen(listener_.get(), SOMAXCONN) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
    return SocketError(path_);
  }
  return absl::OkStatus();
}

ShimDoor::~ShimDoor() {
  if (listener_.valid()) unlink(path_.c_str());
}

void ShimDoor::Accept() {
  for (;;) {
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return;  // no more, or it went away, or no descriptor: it waits
    const pid_t peer = PeerOf(connection.get(), IdOf(user()).value_or(geteuid()));
    if (peer == 0) continue;
    epoll_event event = {.events = EPOLLIN, .data = {.fd = connection.get()}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.get(), &event) != 0) continue;
    const int fd = connection.get();
    shims_[fd].connection = std::move(connection);
    shims_[fd].pid = peer;
  }
}

bool ShimDoor::Read(Shim& shim, std::vector<ShimMessage>& said) {
  for (;;) {
    Descriptor beside;
    const ssize_t got = Receive(shim.connection.get(), packet_, &beside);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) break;
    auto message = ParseShimText({packet_.data(), static_cast<size_t>(got)});
    if (!message) {
      LogWarning("a shim speaks another version; install weft-shim and weft together");
      break;
    }
    // The agent may be root, and signals it later.
    const bool is_theirs = !user_ || OwnerOf(beside) == user_->uid;
    if (message->kind == ShimMessage::Kind::kStarted && !is_theirs) {
      LogWarning(absl::StrCat("refused process ", shim.pid, ": its worker is not user ",
                              user_->name, "'s, as whom it runs"));
      break;
    }
    if (message->kind == ShimMessage::Kind::kStarted) {
      shim.started = *message;
      shim.worker = std::move(beside);
    } else if (message->kind == ShimMessage::Kind::kDoomed) {
      shim.doomed = true;
    } else if (message->kind == ShimMessage::Kind::kEnded) {
      message->was_doomed = shim.doomed;
      shim.ended = true;
      shim.worker.Close();
    } else {
      message->pid = shim.pid;
    }
    said.push_back(*std::move(message));
  }
  if (shim.started.generation > 0 && !shim.ended) {
    SignalPidfd(shim.worker, SIGKILL);
    ShimMessage& end = said.emplace_back(shim.started);
    end.kind = ShimMessage::Kind::kEnded;
    end.wait_status = SIGKILL;  // as wait(2) encodes it
    end.shim_lost = true;
    end.was_doomed = shim.doomed;
    end.last_out = "";
  }
  return false;
}

std::vector<ShimMessage> ShimDoor::Take() {
  std::vector<ShimMessage> said;
  std::array<epoll_event, 64> events;
  for (int round = 0; round < kMostRounds; ++round) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (const auto found = shims_.find(fd);
                 found != shims_.end() && !Read(found->second, said)) {
        shims_.erase(found);
      }
    }
  }
  return said;
}

void ShimDoor::HangUp(int64_t pid) {
  std::erase_if(shims_, [&](const auto& shim) { return shim.second.pid == pid; });
}

void ShimDoor::Signal(int64_t generation, int signal) const {
  for (const auto& [fd, shim] : shims_) {
    if (shim.started.generation == generation) SignalPidfd(shim.worker, signal);
  }
}

}  // namespace weft
