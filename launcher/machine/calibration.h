// This is the pure half of `weft calibrate`: it makes a cluster profile of what probes measured.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/spec/cluster.h"

namespace weft {

inline constexpr int64_t kMostLinksBytes = int64_t{16} << 20;  // of links.json

// MachineFacts holds what the launcher knows of this machine by itself.
struct MachineFacts {
  std::string name;
  BackendKind backend = BackendKind::kCpu;
  int slots = 1;
  int cores = 0;                   // that CPU slots share
  int64_t total_memory_bytes = 0;  // of the host
  int64_t free_memory_bytes = 0;   // of it, what new processes may take
  double storage_bytes_per_s = 0;  // 0 = not measured
};

// `rates` and `links` are the JSON of `weft-worker --probe rates` and `--probe links`; `links` is
// empty where only one rank can run. Peaks are the best that was measured. Internal if the JSON is
// not the worker's (a worker of another version), InvalidArgument if the numbers make no profile.
absl::StatusOr<Cluster> ClusterFromProbes(const MachineFacts& facts, const std::string& rates,
                                          const std::string& links);

// Adds, or puts in place of those that are there, what ranks on several hosts have measured of
// links (`json`: a run's links.json, worker/links/link_probe.h) to the profile of such a host:
// points across nodes, and inter_node by the groups of one rank per node, whose ranks share the
// node's `nics` (0: each has its own). InvalidArgument if it is of one host, of another backend or
// no such file.
absl::Status AddLinksAcrossHosts(const std::string& json, int nics, Cluster* cluster);

// Latency and rate that explain the points best, each point's error relative to it: a ring
// all-reduce is 2 (n - 1) steps of 1/n of the bytes, a transfer is one step.
LinkProfile FitLink(const std::vector<CollectivePoint>& points);

}  // namespace weft
