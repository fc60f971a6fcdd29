// The hosts of a job: who is there, for how many of them it is planned, which of them has which
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
bool Record(const HostsAwaited& fact, Job& job);
bool Record(const LaunchWaits& fact, Job& job);
bool Record(const MoreHosts& fact, Job& job);
bool Record(const AttemptEnded& fact, Job& job);

// Returns how many of the hosts that are there the job could go on with: no more than it asks for,
// not below its least, and a number that has not turned out to have no plan. None: there is none.
std::optional<int> MostHosts(const Job& job);

// For how many hosts the next generation is planned and placed: for all that the job asks for as
// soon as they are there; for MostHosts once nobody else is waited for. None: it waits.
std::optional<int> HostsToPlanFor(const Job& job);

// Which host would have which ranks now, the host of rank 0 first. Unavailable: too few are there.
// FailedPrecondition: they have no place for all ranks; says who lacks what, and the cure.
// REQUIRES: there is a layout.
absl::StatusOr<std::vector<HostShare>> SharesOf(const Job& job);

// Says whether an agent that comes to the machine and holds `held_generation` (0: none) has nothing
// of its share in the current generation, and never will: what was started there is gone with an
// agent before it. While a launch is under way it may not have heard of it, and is told again, as
// long as no rank of its share was there.
bool ComesWithoutItsShare(const Job& job, const std::string& machine, int64_t held_generation);

// The machine's share in the current generation; null if it has none.
const HostShare* FindShare(const Job& job, const std::string& machine);

}  // namespace weft
