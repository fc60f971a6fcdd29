#include "launcher/agent/launch_share.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

// The first host knows of all ranks, each other one of the first's and its own.
absl::Status CheckRanks(const proto::Launch& launch, bool is_first) {
  std::vector<int> placed;
  for (const proto::HostRanks& host : launch.hosts()) {
    if (!std::is_sorted(host.ranks().begin(), host.ranks().end()) || host.ranks().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the ranks of ", host.host(), " are none, or in no order"));
    }
    placed.insert(placed.end(), host.ranks().begin(), host.ranks().end());
  }
  std::sort(placed.begin(), placed.end());
  std::vector<int> all(static_cast<size_t>(std::max(0, launch.world_size())));
  std::iota(all.begin(), all.end(), 0);
  const bool fits = is_first ? placed == all
                             : std::includes(all.begin(), all.end(), placed.begin(), placed.end());
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the hosts' shares are not ranks 0 to ",
                                                 launch.world_size() - 1, ", each once"));
}

}  // namespace

absl::StatusOr<LaunchShare> ShareOf(const proto::Launch& launch, const std::string& machine,
                                    bool needs_mpi) {
  LaunchShare share;
  share.kind = needs_mpi ? GroupKind::kMpirun : GroupKind::kForked;
  if (launch.hosts().empty()) return share;
  RETURN_IF_ERROR(CheckRanks(launch, launch.hosts(0).machine() == machine));
  const proto::HostRanks* own = nullptr;
  for (const proto::HostRanks& host : launch.hosts()) {
    if (own == nullptr && host.machine() == machine) {
      own = &host;
      share.own_host = share.hosts.size();
    }
    share.hosts.push_back({host.host(), {host.ranks().begin(), host.ranks().end()}});
  }
  if (own == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("none of the ", launch.hosts_size(), " hosts is this one, ", machine));
  }
  if (needs_mpi && share.own_host > 0) share.kind = GroupKind::kGuest;
  share.first_addresses.assign(launch.hosts(0).addresses().begin(),
                               launch.hosts(0).addresses().end());
  return share;
}

}  // namespace weft
