// The memory of a host that ranks on its processors share: what weft itself takes once, and what is
// left for each of them. Whoever starts ranks and whoever plans for them count the same. Pure.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "plan/spec/cluster.h"

namespace weft {

// Returns what each of `ranks` on a host of `free_bytes` may use: less a sixteenth, which is left
// to the system, and less cluster.host_library_bytes; no more than the profile says. At least 1.
// REQUIRES: free_bytes >= 1, ranks >= 1.
int64_t HostShareBytes(const Cluster& cluster, int64_t free_bytes, int ranks);

// Returns free memory without the sixteenth that is left to the system and other processes.
int64_t LessTheSystems(int64_t free_bytes);

// Returns `cluster` with so much for each of its slots. FailedPrecondition: the libraries alone
// need more.
absl::StatusOr<Cluster> WithSlotBytes(Cluster cluster, int64_t slot_bytes);

}  // namespace weft
