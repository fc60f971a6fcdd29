#include "coordinator/host_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/offered_slots.h"
#include "plan/errors.h"
#include "plan/search/describe.h"
#include "plan/search/host_share.h"

namespace weft {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// The free memory differs from one moment to the next: a plan is not made anew for less than these.
constexpr int64_t kGpuGrain = int64_t{16} << 20;
constexpr int64_t kHostGrain = int64_t{256} << 20;

bool IsOnGpus(const JobSpec& spec) {
  return spec.cluster.device.backend == BackendKind::kCuda;
}

// Down to a whole number of grains.
int64_t Rounded(int64_t bytes, int64_t grain) {
  return std::max<int64_t>(1, bytes / grain * grain);
}

// Offloading from GPUs takes of a host's memory. A CPU's device memory is the host's.
bool CountsHostBytes(const JobSpec& spec) {
  return IsOnGpus(spec) && spec.layout.offload_optimizer != OffloadDevice::kNone;
}

int64_t HostBytesSaid(const JobSpec& spec) {
  const int64_t said = spec.cluster.host_memory_bytes;
  return said > 0 ? said : kUnlimited;
}

int64_t HostBytes(const OfferedHost& host, const JobSpec& spec) {
  const int64_t said = HostBytesSaid(spec);
  const int64_t offered = LessTheSystems(host.free_bytes);
  if (!CountsHostBytes(spec) || offered <= 0 || offered >= said) return said;
  return Rounded(offered, kHostGrain);
}

// "host h2", the first by name of those with no more than the shape counts on.
const OfferedHost* BindingHost(const ClusterShape& shape, const Job& job, bool by_slot) {
  const OfferedHost* binding = nullptr;
  for (const auto& [machine, host] : job.offers) {
    if (SlotsOf(host, job) < shape.slots_per_node) continue;
    const bool binds = by_slot ? SlotBytes(host, shape.slots_per_node, job.spec) == shape.slot_bytes
                               : HostBytes(host, job.spec) == shape.host_bytes;
    if (binds && (binding == nullptr || host.host < binding->host)) binding = &host;
  }
  return binding;
}

std::string SlotNote(const ClusterShape& shape, const Job& job) {
  const int64_t said = job.spec.cluster.device.memory_bytes;
  std::string note = absl::StrCat(" with ", BytesText(shape.slot_bytes), " of memory a rank, not ",
                                  BytesText(said));
  const OfferedHost* const host = BindingHost(shape, job, /*by_slot=*/true);
  if (host == nullptr) return note;
  absl::StrAppend(&note, ": host ", host->host, ": ");
  if (IsOnGpus(job.spec)) return absl::StrCat(note, host->gpu_text);
  return absl::StrCat(note, BytesText(host->free_bytes), " free for ", shape.slots_per_node,
                      shape.slots_per_node == 1 ? " rank" : " ranks");
}

}  // namespace

int64_t SlotBytes(const OfferedHost& host, int ranks, const JobSpec& spec) {
  const int64_t said = spec.cluster.device.memory_bytes;
  if (!IsOnGpus(spec)) {
    return host.free_bytes <= 0 ? said : HostShareBytes(spec.cluster, host.free_bytes, ranks);
  }
  const int64_t offered = host.gpu_free_bytes;
  if (offered <= 0 || offered >= said || HasMemoryOfProfile(offered, said)) return said;
  return Rounded(offered, kGpuGrain);
}

MemoryRanking::MemoryRanking(const Job& job, const std::vector<std::string>& machines)
    : job_(job), machines_(machines) {
  is_scarce_ = std::any_of(machines.begin(), machines.end(), [&](const std::string& machine) {
    const OfferedHost& host = job.offers.at(machine);
    return SlotBytes(host, SlotsOf(host, job), job.spec) < job.spec.cluster.device.memory_bytes ||
           HostBytes(host, job.spec) < HostBytesSaid(job.spec);
  });
}

ClusterShape MemoryRanking::ShapeOf(int nodes, int ranks) {
  ClusterShape shape = {nodes, ranks};
  if (!is_scarce_) return shape;
  const Offer& least = Ranked(ranks)[static_cast<size_t>(nodes - 1)];
  if (least.first < job_.spec.cluster.device.memory_bytes) shape.slot_bytes = least.first;
  if (least.second < HostBytesSaid(job_.spec)) shape.host_bytes = least.second;
  return shape;
}

// Each offer's host bytes are the least of those before it as well: a shape is what all of its
// hosts have.
const std::vector<MemoryRanking::Offer>& MemoryRanking::Ranked(int ranks) {
  const auto [place, is_new] = ranked_.try_emplace(ranks);
  std::vector<Offer>& offers = place->second;
  if (!is_new) return offers;
  for (const std::string& machine : machines_) {
    const OfferedHost& host = job_.offers.at(machine);
    if (SlotsOf(host, job_) < ranks) continue;
    offers.emplace_back(SlotBytes(host, ranks, job_.spec), HostBytes(host, job_.spec));
  }
  std::sort(offers.rbegin(), offers.rend());
  for (size_t i = 1; i < offers.size(); ++i) {
    offers[i].second = std::min(offers[i].second, offers[i - 1].second);
  }
  return offers;
}

bool HasMemoryOf(const ClusterShape& shape, const OfferedHost& host, const Job& job) {
  const int64_t slot_bytes =
      shape.slot_bytes > 0 ? shape.slot_bytes : job.spec.cluster.device.memory_bytes;
  const int64_t host_bytes = shape.host_bytes > 0 ? shape.host_bytes : HostBytesSaid(job.spec);
  return SlotBytes(host, shape.slots_per_node, job.spec) >= slot_bytes &&
         HostBytes(host, job.spec) >= host_bytes;
}

bool IsRefused(const ClusterShape& shape, const Job& job) {
  const auto is_no_more = [](int64_t bytes, int64_t refused) {
    return refused == 0 || (bytes > 0 && bytes <= refused);
  };
  for (auto each = job.refused.lower_bound({shape.nodes, shape.slots_per_node});
       each != job.refused.end() && each->nodes == shape.nodes &&
       each->slots_per_node == shape.slots_per_node;
       ++each) {
    if (is_no_more(shape.slot_bytes, each->slot_bytes) &&
        is_no_more(shape.host_bytes, each->host_bytes)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<JobSpec> SpecFor(const ClusterShape& shape, JobSpec spec) {
  spec.cluster.nodes = shape.nodes;
  spec.cluster.slots_per_node = shape.slots_per_node;
  if (shape.host_bytes > 0) spec.cluster.host_memory_bytes = shape.host_bytes;
  if (shape.slot_bytes == 0) return spec;
  ASSIGN_OR_RETURN(spec.cluster, WithSlotBytes(std::move(spec.cluster), shape.slot_bytes));
  return spec;
}

std::string MemoryNote(const ClusterShape& shape, const Job& job) {
  std::string note = shape.slot_bytes > 0 ? SlotNote(shape, job) : "";
  if (shape.host_bytes == 0) return note;
  absl::StrAppend(&note, note.empty() ? " with " : ", and ", BytesText(shape.host_bytes),
                  " of a host for what is offloaded");
  const int64_t said = job.spec.cluster.host_memory_bytes;
  if (said > 0) absl::StrAppend(&note, ", not ", BytesText(said));
  const OfferedHost* const host = BindingHost(shape, job, /*by_slot=*/false);
  if (host != nullptr) {
    absl::StrAppend(&note, ": host ", host->host, ": ", BytesText(host->free_bytes), " free");
  }
  return note;
}

}  // namespace weft
