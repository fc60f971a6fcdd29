// The hosts that a person names for a run: by --hosts, or in a host file of Open MPI's or
// DeepSpeed's spelling, and what --include and --exclude (DeepSpeed's) keep of them. Texts in,
// values out; every error at once, each on a line of its own with its place. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/failure_domains.h"

namespace weft {

struct ListedHost {
  std::string name;               // as ssh finds it: a name or an address
  std::string user = {};          // empty: ssh's choice
  int slots = 0;                  // how many workers; 0: what its agent offers
  std::vector<int> only = {};     // slots to use alone, in order; none: all
  std::vector<int> without = {};  // slots to leave out, in order
  std::string domain = {};        // what fails together with it, rack1; empty: nothing is known
  friend bool operator==(const ListedHost&, const ListedHost&) = default;
};

// How many of the host's slots are to be used; 0: what its agent offers.
int UsedSlotCount(const ListedHost& host);
// Gives each host the domain that the job's file names it in (plan/spec/failure_domains.h).
// InvalidArgument: it is in none, or in another one than the host file says. Without domains
// nothing changes.
absl::Status SetDomains(const FailureDomains& domains, std::vector<ListedHost>* hosts);
// Options of `weft agent` tell it of its slots and its domain.
std::vector<std::string> SlotOptions(const ListedHost& host);
// "h1: slots 0, 2 of 4; h2: all but slot 1", of the hosts that not all slots are used of; empty:
// there are none.
std::string ChosenSlotsText(const std::vector<ListedHost>& hosts);

// HostWords are the options of a command line; empty: not given.
struct HostWords {
  std::string hosts = {};          // "a,b:2,user@c"; an IPv6 address in brackets
  std::string hostfile = {};       // its path, for messages
  std::string hostfile_text = {};  // what is in it
  std::string include = {};        // "a@b:0,2": only these hosts, and of b only slots 0 and 2
  std::string exclude = {};        // in the same spelling: without these
};

// The hosts in the order in which they are named first. A host that is named several times has the
// sum of its slots, as in Open MPI, if each says how many; otherwise the second one is refused.
// InvalidArgument, one line a mistake, also if no host is left.
absl::StatusOr<std::vector<ListedHost>> ListHosts(const HostWords& words);

}  // namespace weft
