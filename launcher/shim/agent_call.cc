#include "launcher/shim/agent_call.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weft {

int ShimFailed(const std::string& what, int code) {
  std::fprintf(stderr, "weft-shim: %s\n", what.c_str());
  return code;
}

int CallAgent(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  // The agent of a rank that is another user's is root's.
  if (connected && (peer.uid == geteuid() || peer.uid == 0)) return fd;
  const int reason = connected ? EACCES : errno;
  close(fd);
  errno = reason;
  return -1;
}

bool TellAgent(int agent, const ShimMessage& message, int descriptor) {
  std::string text = ShimText(message);
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (descriptor >= 0) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  ssize_t sent = -1;
  while ((sent = sendmsg(agent, &packet, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent >= 0;
}

}  // namespace weft
