#include "plan/spec/subnet.h"

#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kGroups = 8;  // of 16 bits, in IPv6

std::optional<IpAddress> ParseV4(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() != 4) return std::nullopt;
  IpAddress address;
  for (size_t i = 0; i < parts.size(); ++i) {
    int number = 0;
    const bool plain =
        parts[i].size() <= 3 && parts[i].find_first_not_of("0123456789") == absl::string_view::npos;
    if (!plain || !absl::SimpleAtoi(parts[i], &number) || number > 255) return std::nullopt;
    address.bytes[i] = static_cast<uint8_t>(number);
  }
  return address;
}

// "fd00:1" as its groups; nothing if one is no group.
std::optional<std::vector<int>> ParseGroups(absl::string_view text) {
  std::vector<int> groups;
  if (text.empty()) return groups;
  for (const absl::string_view part : absl::StrSplit(text, ':')) {
    uint32_t number = 0;
    if (part.size() > 4 || !absl::SimpleHexAtoi(part, &number)) return std::nullopt;
    groups.push_back(static_cast<int>(number));
  }
  return groups;
}

std::optional<IpAddress> ParseV6(absl::string_view text) {
  const std::vector<absl::string_view> halves = absl::StrSplit(text, "::");
  if (halves.size() > 2) return std::nullopt;
  const std::optional<std::vector<int>> front = ParseGroups(halves.front());
  const std::optional<std::vector<int>> back =
      halves.size() == 2 ? ParseGroups(halves.back()) : std::vector<int>();
  if (!front || !back) return std::nullopt;
  const int given = static_cast<int>(front->size() + back->size());
  if (halves.size() == 2 ? given >= kGroups : given != kGroups) return std::nullopt;
  IpAddress address{.is_v6 = true};
  const auto put = [&](size_t group, int number) {
    address.bytes[2 * group] = static_cast<uint8_t>(number >> 8);
    address.bytes[2 * group + 1] = static_cast<uint8_t>(number & 255);
  };
  for (size_t i = 0; i < front->size(); ++i) put(i, (*front)[i]);
  for (size_t i = 0; i < back->size(); ++i) put(kGroups - back->size() + i, (*back)[i]);
  return address;
}

bool Bit(const IpAddress& address, int at) {
  return (address.bytes[static_cast<size_t>(at / 8)] >> (7 - at % 8) & 1) != 0;
}

}  // namespace

absl::StatusOr<IpAddress> ParseIpAddress(absl::string_view text) {
  const std::optional<IpAddress> address =
      text.find(':') == absl::string_view::npos ? ParseV4(text) : ParseV6(text);
  if (address) return *address;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not an IP address"));
}

bool Subnet::Contains(const IpAddress& other) const {
  if (other.is_v6 != address.is_v6) return false;
  for (int bit = 0; bit < prefix; ++bit) {
    if (Bit(address, bit) != Bit(other, bit)) return false;
  }
  return true;
}

absl::StatusOr<Subnet> ParseSubnet(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  const absl::StatusOr<IpAddress> address = ParseIpAddress(parts.front());
  Subnet subnet;
  const int most = address.ok() && address->is_v6 ? 128 : 32;
  const bool is_subnet = parts.size() == 2 && address.ok() &&
                         absl::SimpleAtoi(parts.back(), &subnet.prefix) && subnet.prefix >= 0 &&
                         subnet.prefix <= most;
  if (!is_subnet) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a subnet; write an address and how many of its bits ",
                     "count, e.g. 10.78.0.0/24"));
  }
  subnet.address = *address;
  for (int bit = subnet.prefix; bit < most; ++bit) {
    if (!Bit(subnet.address, bit)) continue;
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" has bits beyond the first ",
                                                   subnet.prefix, ", as a host's address has; ",
                                                   "write the network's, whose other bits are 0"));
  }
  return subnet;
}

}  // namespace weft
