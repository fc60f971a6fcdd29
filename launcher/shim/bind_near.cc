// libweft_bind.so: preloaded into mpirun, its daemons and the ranks that it starts. Open MPI 4.1
// announces addresses of the network that it is told, but listens on those of all networks, even
// where all ranks are on one host, and has no setting for that. Here whoever would listen for TCP
// on any address listens on the one of WEFT_BIND_ADDRESS, and in the other family on the loopback,
// where nobody finds it. Everything else goes to the kernel as it is. Standard library alone.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace {

bool IsTcp(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

long Bind(int fd, const void* address, socklen_t size) {
  return syscall(SYS_bind, fd, address, size);
}

}  // namespace

extern "C" int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  const char* near = std::getenv("WEFT_BIND_ADDRESS");
  if (near != nullptr && address != nullptr && IsTcp(fd)) {
    if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
      sockaddr_in four = *reinterpret_cast<const sockaddr_in*>(address);
      if (four.sin_addr.s_addr == htonl(INADDR_ANY)) {
        if (inet_pton(AF_INET, near, &four.sin_addr) != 1) {
          four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        return static_cast<int>(Bind(fd, &four, sizeof(four)));
      }
    } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
      sockaddr_in6 six = *reinterpret_cast<const sockaddr_in6*>(address);
      if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) {
        if (inet_pton(AF_INET6, near, &six.sin6_addr) != 1) six.sin6_addr = in6addr_loopback;
        return static_cast<int>(Bind(fd, &six, sizeof(six)));
      }
    }
  }
  return static_cast<int>(Bind(fd, address, size));
}
