#include "plan/search/host_share.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

// The free memory differs from one moment to the next: a plan is not made anew for less than this.
constexpr int64_t kSlotGrain = int64_t{16} << 20;

}  // namespace

int64_t LessTheSystems(int64_t free_bytes) {
  return free_bytes - free_bytes / 16;
}

int64_t HostShareBytes(const Cluster& cluster, int64_t free_bytes, int ranks) {
  const int64_t said = cluster.device.memory_bytes;
  const int64_t offered = (LessTheSystems(free_bytes) - cluster.host_library_bytes) / ranks;
  if (offered >= said) return said;
  return std::max<int64_t>(1, offered / kSlotGrain * kSlotGrain);
}

absl::StatusOr<Cluster> WithSlotBytes(Cluster cluster, int64_t slot_bytes) {
  const int64_t libraries = cluster.device.library_bytes;
  if (slot_bytes <= libraries) {
    return absl::FailedPreconditionError(
        absl::StrCat("the libraries of a rank alone take ", BytesText(libraries),
                     " of it; end what else runs "
                     "on the host, or name fewer slots (--hosts NAME:SLOTS)"));
  }
  cluster.device.memory_bytes = slot_bytes;
  return cluster;
}

}  // namespace weft
