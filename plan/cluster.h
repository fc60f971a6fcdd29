// The machine as data: devices, links, how many of each. Filled from configs/clusters by the
// launcher; the planner reads nothing else about hardware. Pure values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plan/spec_issue.h"

namespace weft {

enum class BackendKind { kCpu, kCuda };

// One worker's device: a GPU, or a CPU slot.
struct DeviceProfile {
  std::string name;
  BackendKind backend = BackendKind::kCpu;
  int64_t memory_bytes = 0;       // what one worker may use in all
  int64_t library_bytes = 0;      // of it, taken by libraries, contexts, the process itself
  double matmul_flops_per_s = 0;  // sustained, one worker alone on its cores
  double memory_bytes_per_s = 0;  // sustained, streaming
  double op_overhead_s = 0;       // host time to start one operation

  int64_t usable_bytes() const { return memory_bytes - library_bytes; }
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// alpha-beta model of a link: seconds = latency_s + bytes / bytes_per_s.
struct LinkProfile {
  double latency_s = 0;
  double bytes_per_s = 0;
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

struct Cluster {
  std::string name;
  int nodes = 1;
  int slots_per_node = 1;  // workers a node can hold
  int cores_per_node = 0;  // CPU backend: cores that the slots share; 0 = one device per slot
  DeviceProfile device;
  LinkProfile intra_node;  // between workers of one node
  LinkProfile inter_node;  // between nodes, per worker

  int slots() const { return nodes * slots_per_node; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// The job.yaml key that says how many workers a node holds: "cluster.slots" for CPU slots,
// "cluster.gpus_per_node" for GPUs.
absl::string_view SlotsKey(BackendKind backend);

// Every field that makes no sense; keys as "cluster.nodes", "cluster.device.memory_bytes".
std::vector<SpecIssue> ClusterIssues(const Cluster& cluster);

// Returns the first of ClusterIssues (InvalidArgument), or OK.
absl::Status CheckCluster(const Cluster& cluster);

// By how much workers that share cores slow each other: max(1, slots in use / cores).
double CoreSharing(const Cluster& cluster, int workers);

}  // namespace weft
