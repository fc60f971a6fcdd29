// The hosts of a job: who is there, what they are planned for, which of them has which
// ranks, and which is proven gone. Facts about hosts become state here (job.h, Apply). Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/job_state.h"

namespace weft {

// Each returns whether it changed anything.
bool Record(const HostOffered& fact, Job& job);
bool Record(const HostAway& fact, Job& job);
bool Record(const HostLost& fact, Job& job);
bool Record(const HostFenced& fact, Job& job);
bool Record(const HostLeaves& fact, Job& job);
bool Record(const HostsAwaited& fact, Job& job);
bool Record(const LaunchWaits& fact, Job& job);
bool Record(const MoreHosts& fact, Job& job);
bool Record(const AttemptEnded& fact, Job& job);

// `shape` with what it leaves open (0) as the job says.
ClusterShape ShapeOr(ClusterShape shape, const JobSpec& spec);

// " with 2 of 4 slots each": how the shape's hosts differ from those that the job speaks of; empty:
// they do not.
std::string SlotsNote(const ClusterShape& shape, const JobSpec& spec);

// Names the hosts that offer fewer slots than the job says of each, with the cure; empty: none
// does.
std::string SmallHostsText(const Job& job);

// Returns the shape with the most slots that the hosts which are there could be used in: each takes
// as many ranks as the smallest that is used, so a small host may be left aside for the sake of
// the rest. No more hosts than the job asks for, not fewer than its least, and nothing that has
// turned out to have no plan. Of hosts that take enough ranks those with the most memory are used.
// None: there is none.
std::optional<ClusterShape> LargestShape(const Job& job);

// The hosts that are there would give more slots than the plan has.
bool MayGrow(const Job& job);

// Returns what the next generation is planned and placed for: LargestShape as soon as all hosts are
// there that the job asks for, or nobody else is waited for. None: it waits.
std::optional<ClusterShape> ShapeToPlanFor(const Job& job);

struct HostShares {
  std::vector<HostShare> shares = {};
  std::string picture = {};  // PlacementText
};
// Which host would have which ranks now, the host of rank 0 first. Unavailable: too few are there.
// FailedPrecondition: they have no place for all ranks.
// REQUIRES: there is a layout.
absl::StatusOr<HostShares> SharesOf(const Job& job);

// Says whether an agent that comes to the machine and holds `held_generation` (0: none) has nothing
// of its share in the current generation, and never will: what was started there is gone with an
// agent before it. While a launch is under way it may not have heard of it, and is told again, as
// long as no rank of its share was there.
bool ComesWithoutItsShare(const Job& job, const std::string& machine, int64_t held_generation);

// The machine's share in the current generation; null if it has none.
const HostShare* FindShare(const Job& job, const std::string& machine);

}  // namespace weft
