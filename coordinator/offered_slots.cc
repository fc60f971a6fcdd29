#include "coordinator/offered_slots.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int kMostHostSlots = 4096;  // whatever an agent says

}  // namespace

int SlotsOf(const OfferedHost& host, const Job& job) {
  const JobSpec& spec = job.spec;
  const bool on_gpus = spec.cluster.device.backend == BackendKind::kCuda;
  if (job.slots_as_offered) {
    const int has = on_gpus ? host.gpus : host.cores / std::max(1, spec.threads_per_worker);
    const int offered = host.slots > 0 ? host.slots : has;
    if (offered > 0) return std::min(offered, kMostHostSlots);
  }
  const int most = spec.cluster.slots_per_node;
  if (host.slots > 0) return std::min(host.slots, most);
  return on_gpus && host.gpus > 0 ? std::min(host.gpus, most) : most;
}

}  // namespace weft
