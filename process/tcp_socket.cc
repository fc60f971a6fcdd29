#include "process/tcp_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const NetworkAddress& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("address ", AddressText(address),
                                             ": cannot be listened on (", why,
                                             "); use an address of this host and a free port, or "
                                             "port 0 for any"));
}

absl::StatusOr<AddressList> Resolve(const NetworkAddress& address) {
  addrinfo wanted = {};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int code = getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found);
  if (code != 0) return CannotListen(address, gai_strerror(code));
  return AddressList(found, &freeaddrinfo);
}

// -1, and errno: it cannot be listened on.
int ListenOn(const addrinfo& at) {
  const int made =
      socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
  if (made < 0) return -1;
  const int yes = 1, no = 0;
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // its last owner may just be gone
  if (at.ai_family == AF_INET6) setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind(made, at.ai_addr, at.ai_addrlen) == 0 && listen(made, SOMAXCONN) == 0) return made;
  const int why = errno;
  close(made);
  errno = why;
  return -1;
}

// The first address of the name that can be listened on.
absl::StatusOr<int> ListenAtOne(const NetworkAddress& address) {
  ASSIGN_OR_RETURN(const AddressList found, Resolve(address));
  int why = EADDRNOTAVAIL;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const int listener = ListenOn(*each);
    if (listener >= 0) return listener;
    why = errno;
  }
  return CannotListen(address, strerror(why));
}

// 0: it is no name of the network.
int PortIn(const sockaddr_storage& name) {
  if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
  if (name.ss_family != AF_INET6) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
}

// Writes the address of a socket's own name, or its peer's, as a number.
std::string NumericHost(const sockaddr_storage& name, socklen_t size) {
  char host[NI_MAXHOST];
  const int code = getnameinfo(reinterpret_cast<const sockaddr*>(&name), size, host, sizeof host,
                               nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? host : "unknown";
}

}  // namespace

absl::StatusOr<int> ListenAt(const NetworkAddress& address) {
  if (address.host == "0.0.0.0") {
    absl::StatusOr<int> both = ListenAtOne({"::", address.port});
    if (both.ok()) return both;
  }
  return ListenAtOne(address);
}

int PortOf(int listener) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  const bool is_named = getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  return is_named ? PortIn(name) : 0;
}

int PeerPort(int connection) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  const bool is_named = getpeername(connection, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  return is_named ? PortIn(name) : 0;
}

std::string PeerAddress(int connection) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "unknown";
  const std::string host = NumericHost(name, size);
  return std::string(absl::StripPrefix(host, "::ffff:"));
}

}  // namespace weft
