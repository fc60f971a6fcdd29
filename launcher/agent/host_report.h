// The host as whoever places ranks has to know it: cores and memory that our control group leaves
// us, NUMA nodes, GPUs as the PCI bus knows them, addresses by which others may reach it. Cheap:
// files of /proc and /sys; only where there are GPUs their driver's library is asked for memory.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/agent.pb.h"

namespace weft {

proto::Host DescribeHost();

// The version of MPI that this host's mpirun is of, "Open MPI 4.1.4"; empty: none is found.
std::string FindMpi();

// A list of CPUs as the kernel writes it, "0-3,8,10-11", in numbers; what is no such list is left
// out.
std::vector<int> CpusIn(const std::string& list);

// The same host's NUMA nodes, GPUs and their driver from files below `root` instead of / (tests).
void DescribeTopologyBelow(const std::string& root, proto::Host* host);

// Returns "Open MPI 4.1.4" of mpirun's first line, "mpirun (Open MPI) 4.1.4"; empty for another
// one's.
std::string MpiOf(absl::string_view line);

// Returns "Open MPI 4.1.4, NVIDIA H100 80GB HBM3, driver 550.54.15": as far as they are known.
std::string SoftwareText(const proto::Host& host);

// "2 cores, 23.4 GiB, 1 NUMA node, no GPU, 10.0.0.2": for a log.
std::string HostText(const proto::Host& host);

}  // namespace weft
