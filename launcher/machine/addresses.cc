#include "launcher/machine/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/machine.h"
#include "plan/errors.h"
#include "plan/spec/subnet.h"

namespace weft {
namespace {

constexpr char kAnyPort[] = "9";  // nothing is sent there

struct Freed {
  void operator()(addrinfo* found) const { freeaddrinfo(found); }
};
using Found = std::unique_ptr<addrinfo, Freed>;

Found Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), kAnyPort, &hints, &found) != 0) return nullptr;
  return Found(found);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) != 0;
}

// Empty for what is no address of the internet, and for link-local ones, which mean nothing to
// another host.
std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return {};
    bytes = &six->sin6_addr;
  }
  if (bytes == nullptr) return {};
  return inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return addresses;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const bool up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || each->ifa_addr == nullptr) continue;
    std::string text = TextOf(each->ifa_addr);
    if (!text.empty()) addresses.push_back(std::move(text));
  }
  freeifaddrs(first);
  return addresses;
}

absl::StatusOr<std::string> OwnAddressIn(const std::string& network) {
  ASSIGN_OR_RETURN(const Subnet subnet, ParseSubnet(network));
  const std::vector<std::string> own = OwnAddresses();
  const auto found = std::find_if(own.begin(), own.end(), [&](const std::string& text) {
    const absl::StatusOr<IpAddress> address = ParseIpAddress(text);
    return address.ok() && subnet.Contains(*address);
  });
  if (found != own.end()) return *found;
  return absl::InvalidArgumentError(absl::StrCat("cluster.network: ", network,
                                                 ": this host has no address there; name the ",
                                                 "network that all hosts are in"));
}

bool IsThisHost(const std::string& host) {
  if (host == HostName() || host == "localhost") return true;
  const std::vector<std::string> own = OwnAddresses();
  const Found found = Resolve(host);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (IsLoopback(each->ai_addr)) return true;
    if (std::count(own.begin(), own.end(), TextOf(each->ai_addr)) > 0) return true;
  }
  return false;
}

absl::StatusOr<std::string> AddressTowards(const std::string& host) {
  const Found found = Resolve(host);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const Descriptor probe(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    auto* generic = reinterpret_cast<sockaddr*>(&own);
    if (getsockname(probe.get(), generic, &size) != 0) continue;
    std::string text = TextOf(generic);
    if (!text.empty()) return text;
  }
  return absl::UnavailableError(absl::StrCat(
      "host ", host, ": ", found ? "no route leads there" : "its name has no address here",
      "; name the network that this host and the others are in by cluster.network"));
}

}  // namespace weft
