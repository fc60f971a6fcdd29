#include "process/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/log.h"
#include "process/rpc.h"

namespace weft {
namespace {

absl::Status SocketError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("socket ", path, ": ", what));
}

// A socket whose owner was killed stays on the disk, and nobody answers there.
absl::Status RemoveStale(const std::string& path) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return SocketError(path, "cannot be made");
  const bool listens = UseSocketPath(probe, path, SocketUse::kConnect);
  const int why = errno;
  close(probe);
  if (listens) {
    return absl::FailedPreconditionError(
        absl::StrCat("socket ", path, ": another weftd listens there; stop that one first"));
  }
  if (why == ECONNREFUSED && unlink(path.c_str()) != 0) {
    return SocketError(path, "is stale and cannot be removed");
  }
  return absl::OkStatus();
}

// None: the kernel does not say.
std::optional<ucred> PeerOf(int connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const std::string& path,
                                                          Handler on_connection,
                                                          std::function<bool(uid_t)> admits) {
  RETURN_IF_ERROR(UnixTarget(path).status());
  RETURN_IF_ERROR(RemoveStale(path));
  std::unique_ptr<Listener> listener(new Listener(path, std::move(admits)));
  RETURN_IF_ERROR(listener->Bind());
  const auto take = [raw = listener.get(), handle = std::move(on_connection)](int connection) {
    raw->Take(connection, handle);
  };
  ASSIGN_OR_RETURN(listener->loop_, AcceptLoop::Start(std::exchange(listener->socket_, -1), take));
  return listener;
}

absl::Status Listener::Bind() {
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return SocketError(path_, "cannot be made");
  if (!UseSocketPath(socket_, path_, SocketUse::kBind)) {
    return SocketError(path_, "cannot be bound");
  }
  // Nobody can connect before listen(), so there is no moment at which the mode is another one.
  struct stat entry = {};
  // Where others can write in the folder, a link may have taken the socket's place.
  const mode_t mode = admits_ ? 0666 : 0600;
  if (fchmodat(AT_FDCWD, path_.c_str(), mode, AT_SYMLINK_NOFOLLOW) != 0 ||
      lstat(path_.c_str(), &entry) != 0) {
    return SocketError(path_, "cannot be protected");
  }
  device_ = entry.st_dev;
  inode_ = entry.st_ino;
  if (listen(socket_, SOMAXCONN) != 0) return SocketError(path_, "cannot be listened to");
  return absl::OkStatus();
}

Listener::~Listener() {
  loop_.reset();
  if (socket_ >= 0) close(socket_);
  struct stat entry = {};
  const bool ours = inode_ != 0 && lstat(path_.c_str(), &entry) == 0 && entry.st_dev == device_ &&
                    entry.st_ino == inode_;
  if (ours) unlink(path_.c_str());
}

bool Listener::IsLetIn(uid_t uid) const {
  return uid == geteuid() || (admits_ && admits_(uid));
}

void Listener::Take(int connection, const Handler& on_connection) const {
  const std::optional<ucred> peer = PeerOf(connection);
  if (peer && IsLetIn(peer->uid)) return on_connection(connection, peer->uid);
  if (peer) {
    LogWarning(absl::StrCat("refused a connection of user ", peer->uid, ", process ", peer->pid));
  }
  close(connection);
}

}  // namespace weft
