// Liveness tells who is too silent, and what takes too long. Pure: time is an argument, in
// milliseconds of a clock that nobody sets (CLOCK_BOOTTIME).
//
// A host's lease ends on the host before it does so here, and its ranks stop at 0.8 of it: who has
// none any more has stopped already.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/job.h"

namespace weft {

// Clocks holds what the driver has heard and when. It is not journaled: after a restart everybody
// was heard "now".
struct Clocks {
  std::map<int, int64_t> heard_ms;  // by rank of the current generation: its last report
  int64_t generation_since_ms = 0;  // when the generation came into its phase
  int64_t looked_ms = 0;            // when ShiftedByStall was last called
  int64_t save = 0;                 // number of the one that is under way; 0: none
  int64_t save_since_ms = 0;        // when its first rank had its part
  std::map<std::string, int64_t> lease_end_ms;  // of machines of the generation: their newest lease
  // Machines that may live by a coordinator's promise: their ranks need not be heard.
  std::set<std::string> promised;
  int64_t hosts_since_ms = 0;        // when hosts came or went last
  int64_t none_silent_until_ms = 0;  // NoneSilentUntil, as of some time ago
};

struct SilentRank {
  int rank = 0;
  std::string reason;  // "nothing heard for 8.1 s, the lease is 8.0 s"
};

// Ranks not heard for longer than the lease, in rank order.
std::vector<SilentRank> Lost(const std::map<int, int64_t>& heard_ms, int64_t now_ms,
                             int64_t lease_ms);

// Until then nobody is silent for longer than the lease, whoever is heard meanwhile; 0: nobody was
// heard. So thousands of ranks are looked at once a lease, not with every tick.
int64_t NoneSilentUntil(const Clocks& clocks, int64_t lease_ms);

// If the coordinator itself did not run between looked_ms and now (stopped, swapped out), nobody
// could have been heard: all times move by the length of the stall beyond `expected_ms`.
Clocks ShiftedByStall(Clocks clocks, int64_t now_ms, int64_t expected_ms);

// The facts that time alone makes of `job`: HostLost, WorkerLost (of a host that is heard), Overdue
// (generation not registered within comm.init_timeout_seconds or not ready within kLoadLimitMs, a
// save that takes too long, finished workers that do not exit), HostsAwaited and MoreHosts.
std::vector<Event> Expired(const Job& job, const Clocks& clocks, int64_t now_ms, int64_t lease_ms);

// A rank may take so long for its part of a save, once another one has had its own. Others wait for
// it outside of collectives, so their deadlines do not count.
inline constexpr int64_t kSaveLimitMs = 1800000;
// Loading may take so long, from all ranks' registration until each has loaded what it starts from,
// or comm.init_timeout_seconds if that is longer: a large checkpoint on a slow disk takes a while.
inline constexpr int64_t kLoadLimitMs = 1800000;
// Finished workers may take so long to exit before their group is stopped.
inline constexpr int64_t kExitGraceMs = 10000;
// A host's lease has to be over for this long before what ran there counts as gone.
inline constexpr int64_t kSilenceMarginMs = 1000;
// The first generation waits so long for all hosts that the job asks for, if fewer would do and it
// is not known that no more come; a later one waits a moment for those that are on their way back.
inline constexpr int64_t kFirstHostsMs = 30000;
inline constexpr int64_t kLastCallMs = 500;

}  // namespace weft
