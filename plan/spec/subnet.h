// Subnet: a network as a person names it, "10.78.0.0/24" or "fd00:1::/64". Names of interfaces
// differ from host to host; their network does not. Pure.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

struct IpAddress {
  std::array<uint8_t, 16> bytes = {};  // the first 4 of IPv4
  bool is_v6 = false;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};
// InvalidArgument unless `text` is an address of IPv4 or IPv6.
absl::StatusOr<IpAddress> ParseIpAddress(absl::string_view text);

struct Subnet {
  IpAddress address;
  int prefix = 0;  // leading bits that its addresses share

  bool Contains(const IpAddress& other) const;
};
// InvalidArgument unless `text` is ADDRESS/BITS without bits beyond those.
absl::StatusOr<Subnet> ParseSubnet(absl::string_view text);

}  // namespace weft
