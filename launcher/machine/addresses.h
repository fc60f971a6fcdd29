// The addresses of this host and of others, as the resolver and the kernel know them.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// IPv4 and IPv6 addresses of interfaces that are up, without loopback and link-local ones.
std::vector<std::string> OwnAddresses();

// The first of them in the subnet. InvalidArgument, naming the network, if there is none.
absl::StatusOr<std::string> OwnAddressIn(const std::string& network);

// True if `host`, a name or an address, is this one.
bool IsThisHost(const std::string& host);

// The address of this host that packets to `host` leave from. Unavailable if the name has no
// address or no route leads there.
absl::StatusOr<std::string> AddressTowards(const std::string& host);

}  // namespace weft
