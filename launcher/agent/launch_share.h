// A Launch says where all ranks of a generation lie; an agent finds its own share there, and how
// its ranks are to be started. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/host_agent.h"
#include "launcher/machine/start.h"
#include "proto/agent.pb.h"

namespace weft {

struct LaunchShare {
  GroupKind kind = GroupKind::kForked;
  std::vector<RanksOfHost> hosts;            // of the generation; empty: all ranks are here
  size_t own_host = 0;                       // which of them is this one
  std::vector<std::string> first_addresses;  // of mpirun's host
};

// `machine`: as this agent's Hello names it. `needs_mpi`: mpirun joins the ranks. InvalidArgument
// where this host has no share, or the hosts' shares are not each rank once.
absl::StatusOr<LaunchShare> ShareOf(const proto::Launch& launch, const std::string& machine,
                                    bool needs_mpi);

}  // namespace weft
