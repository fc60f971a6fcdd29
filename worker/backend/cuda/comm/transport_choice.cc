#include "worker/backend/cuda/comm/transport_choice.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "worker/backend/cuda/comm/local_comm.h"
#include "worker/backend/cuda/comm/nccl_comm.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr const char* kFactsTopic = "cuda.device";
constexpr const char* kDecisionTopic = "cuda.transport";

// Rank 0 sends its Decision to all.
struct Decision {
  TransportChoice choice;
  NcclIds ids;  // of NCCL
  // Marks where ranks of one host meet: what a killed run left there is not theirs.
  uint64_t nonce = 0;
};
static_assert(std::is_trivially_copyable_v<Decision> && std::is_trivially_copyable_v<DeviceFacts>);

void NameHost(char (&name)[48]) {
  std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "re");
  const bool read = file != nullptr && std::fscanf(file, "%47s", name) == 1;
  if (file != nullptr) std::fclose(file);
  if (!read) gethostname(name, sizeof(name) - 1);
}

TransportChoice Refused(const BackendStatus& status) {
  TransportChoice choice;
  choice.status = status;
  return choice;
}

TransportChoice Chosen(TransportKind kind, const std::string& why) {
  TransportChoice choice;
  choice.kind = kind;
  std::snprintf(choice.why, sizeof(choice.why), "%s", why.c_str());
  return choice;
}

TransportChoice Nccl(const std::vector<DeviceFacts>& ranks, const std::string& why) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_problem[0] == '\0') continue;
    return Refused(Failure(kFailedPrecondition, "rank %zu: %s", rank, ranks[rank].nccl_problem));
  }
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_version == ranks[0].nccl_version) continue;
    return Refused(Failure(kFailedPrecondition,
                           "rank 0 on %s has NCCL %s, rank %zu on %s has %s; install the same on "
                           "all hosts, or name its folder in LD_LIBRARY_PATH",
                           ranks[0].host_name, NcclVersionText(ranks[0].nccl_version).c_str(), rank,
                           ranks[rank].host_name,
                           NcclVersionText(ranks[rank].nccl_version).c_str()));
  }
  return Chosen(TransportKind::kNccl, why);
}

// Rank 0's part: hears all, chooses, says it to all.
BackendStatus Decide(const CommOptions& options, const DeviceFacts& own, Decision* decision) {
  std::vector<DeviceFacts> ranks(static_cast<size_t>(options.world_size));
  ranks[0] = own;
  for (int rank = 1; rank < options.world_size; ++rank) {
    if (auto s = options.relay->Receive(kFactsTopic, rank, options.init_timeout_ms,
                                        &ranks[static_cast<size_t>(rank)], sizeof(DeviceFacts));
        !s.ok()) {
      return s;
    }
  }
  decision->choice = ChooseTransport(options.transport, ranks);
  std::random_device random;
  decision->nonce = uint64_t{random()} << 32 | random();
  if (decision->choice.status.ok() && decision->choice.kind == TransportKind::kNccl) {
    const NcclLibrary* nccl = nullptr;
    if (auto s = LoadNccl(&nccl); !s.ok()) return s;
    for (int use = 0; use < kGroupUses; ++use) {
      if (!OpensWorldOf(static_cast<GroupUse>(use), options)) continue;
      decision->choice.status =
          nccl->ToStatus(nccl->get_unique_id(&decision->ids.of_use[use]), "making an id", nullptr);
      if (!decision->choice.status.ok()) break;
    }
  }
  return options.relay->Send(kDecisionTopic, nullptr, 0, decision, sizeof(*decision));
}

BackendStatus Agree(const CommOptions& options, const Queue& queue, Decision* decision) {
  DeviceFacts own;
  if (BackendStatus s = OwnFacts(&own); !s.ok()) return s;
  own.is_the_only_one = queue.is_of_only_device;
  if (options.rank == 0) {
    if (BackendStatus s = Decide(options, own, decision); !s.ok()) return s;
    return decision->choice.status;
  }
  const int zero = 0;
  if (auto s = options.relay->Send(kFactsTopic, &zero, 1, &own, sizeof(own)); !s.ok()) return s;
  if (auto s = options.relay->Receive(kDecisionTopic, 0, options.init_timeout_ms, decision,
                                      sizeof(*decision));
      !s.ok()) {
    return s;
  }
  return decision->choice.status;
}

}  // namespace

BackendStatus OwnFacts(DeviceFacts* facts) {
  NameHost(facts->host);
  gethostname(facts->host_name, sizeof(facts->host_name) - 1);
  int index = 0;
  if (auto s = FromCuda(cudaGetDevice(&index), "cudaGetDevice"); !s.ok()) return s;
  const cudaError_t code =
      cudaDeviceGetPCIBusId(facts->device, static_cast<int>(sizeof(facts->device)), index);
  if (auto s = FromCuda(code, "cudaDeviceGetPCIBusId"); !s.ok()) return s;
  const NcclLibrary* nccl = nullptr;
  const BackendStatus loaded = LoadNccl(&nccl);
  if (loaded.ok()) facts->nccl_version = nccl->version;
  std::snprintf(facts->nccl_problem, sizeof(facts->nccl_problem), "%s",
                loaded.ok() ? "" : loaded.text);
  return {};
}

TransportChoice ChooseTransport(TransportKind asked, const std::vector<DeviceFacts>& ranks) {
  std::map<std::pair<std::string, std::string>, size_t> holders;
  std::set<std::string> hosts;
  std::string shared;
  bool is_meant = true;  // that they share it
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    hosts.insert(ranks[rank].host);
    const auto [holder, is_new] = holders.insert({{ranks[rank].host, ranks[rank].device}, rank});
    if (is_new || !shared.empty()) continue;
    shared = "ranks " + std::to_string(holder->second) + " and " + std::to_string(rank) +
             " share a device";
    is_meant = !ranks[holder->second].is_the_only_one && !ranks[rank].is_the_only_one;
  }
  const auto count = std::to_string(ranks.size());
  if (asked == TransportKind::kAuto && !is_meant) {
    return Refused(Failure(kFailedPrecondition,
                           "%s, the only one that each sees; start at most as many workers on a "
                           "host as it has devices, or let each see another one",
                           shared.c_str()));
  }
  if (asked == TransportKind::kNccl) return Nccl(ranks, "asked for");
  if (asked == TransportKind::kLocal || (asked == TransportKind::kAuto && !shared.empty())) {
    if (hosts.size() == 1) {
      return Chosen(TransportKind::kLocal, shared.empty() ? "asked for" : shared);
    }
    return Refused(Failure(kFailedPrecondition,
                           "%s, but mapped memory ends at the host, and the ranks are on %zu "
                           "hosts; start one rank per device and use NCCL",
                           shared.empty() ? "mapped memory is asked for" : shared.c_str(),
                           hosts.size()));
  }
  if (ranks.size() == 1) return Chosen(TransportKind::kLocal, "one rank");
  return Nccl(ranks, count + " ranks hold a device each, on " + std::to_string(hosts.size()) +
                         (hosts.size() == 1 ? " host" : " hosts"));
}

BackendStatus OpenCudaComm(const CommOptions& options, const Queue& queue,
                           std::unique_ptr<Comm>* comm) {
  Decision decision;
  if (options.relay != nullptr) {
    if (BackendStatus s = Agree(options, queue, &decision); !s.ok()) return s;
  } else if (options.transport == TransportKind::kNccl) {
    return Failure(kInvalidArgument,
                   "NCCL needs an id that the coordinator carries; only training has one");
  }
  if (decision.choice.kind == TransportKind::kNccl) {
    return OpenNcclComm(options, decision.ids, queue, decision.choice.why, comm);
  }
  char name[128];
  std::snprintf(name, sizeof(name), "%s-%" PRIx64, options.rendezvous, decision.nonce);
  CommOptions local = options;
  if (options.relay != nullptr) local.rendezvous = name;
  return OpenLocalComm(local, queue, decision.choice.why, comm);
}

}  // namespace weft
