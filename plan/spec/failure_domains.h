// Failure domains as a person names them: what fails together (a rack, a switch, a zone), and which
// hosts it has. Hosts are named or meant by a pattern, several with commas between them: * stands
// for any characters, ? for one, [1-8,12] for a number, which has leading zeros where the range
// does. Pure.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

using FailureDomains = std::map<std::string, std::string>;  // rack1: "n[1-8],login1"

bool IsDomainName(absl::string_view name);
inline constexpr char kDomainNames[] = "use letters, digits, '.', '_' and '-'";

// InvalidArgument unless all names and patterns can be read; the message begins with the domain.
absl::Status CheckFailureDomains(const FailureDomains& domains);

// Returns the domain that the host is in. NotFound: it is in none. InvalidArgument: it is in
// several. REQUIRES: CheckFailureDomains.
absl::StatusOr<std::string> DomainOf(const FailureDomains& domains, absl::string_view host);

// All hosts with their domains, in the order in which they are written, if each is named or meant
// by numbers; empty where a * or ? may mean any, or where there are more than kMostNamedHosts.
// REQUIRES: CheckFailureDomains.
inline constexpr size_t kMostNamedHosts = 100000;
std::vector<std::pair<std::string, std::string>> HostsNamedIn(const FailureDomains& domains);

}  // namespace weft
