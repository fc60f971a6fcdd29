#include "plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// More workers than anyone has; keeps products of degrees within int64_t.
constexpr int64_t kMaxSlots = int64_t{1} << 20;

void CheckCounts(const Cluster& cluster, std::vector<SpecIssue>& issues) {
  const absl::string_view slots_key = SlotsKey(cluster.device.backend);
  if (cluster.nodes < 1) {
    issues.push_back({"cluster.nodes", absl::StrCat(cluster.nodes, " is too few; use 1 or more")});
  }
  if (cluster.slots_per_node < 1) {
    issues.push_back({std::string{slots_key},
                      absl::StrCat(cluster.slots_per_node, " is too few; use 1 or more")});
  }
  if (!issues.empty()) return;
  const int64_t slots = int64_t{cluster.nodes} * cluster.slots_per_node;
  if (slots > kMaxSlots) {
    issues.push_back(
        {"cluster.nodes", absl::StrCat(cluster.nodes, " x ", slots_key, " ", cluster.slots_per_node,
                                       " = ", slots, " workers; use at most ", kMaxSlots)});
  }
  if (cluster.cores_per_node < 0) {
    issues.push_back({"cluster.cores_per_node",
                      absl::StrCat(cluster.cores_per_node,
                                   " is negative; use the number of cores that the slots of a "
                                   "node share, or 0 for one device per slot")});
  }
}

void CheckPositive(absl::string_view field, double value, std::vector<SpecIssue>& issues) {
  if (std::isfinite(value) && value > 0) return;
  issues.push_back({absl::StrCat("cluster.", field),
                    absl::StrCat(value,
                                 " is not a positive number; measure it, or take a "
                                 "profile of configs/clusters")});
}

void CheckNotNegative(absl::string_view field, double value, std::vector<SpecIssue>& issues) {
  if (std::isfinite(value) && value >= 0) return;
  issues.push_back(
      {absl::StrCat("cluster.", field), absl::StrCat(value, " is not a time; use 0 or more")});
}

}  // namespace

absl::string_view SlotsKey(BackendKind backend) {
  return backend == BackendKind::kCpu ? "cluster.slots" : "cluster.gpus_per_node";
}

std::vector<SpecIssue> ClusterIssues(const Cluster& cluster) {
  std::vector<SpecIssue> issues;
  CheckCounts(cluster, issues);
  const DeviceProfile& device = cluster.device;
  if (device.memory_bytes < 1) {
    issues.push_back({"cluster.device.memory_bytes",
                      absl::StrCat(device.memory_bytes,
                                   " is too little; use the bytes that one worker may take")});
  }
  if (device.library_bytes < 0 ||
      (device.memory_bytes >= 1 && device.library_bytes >= device.memory_bytes)) {
    issues.push_back(
        {"cluster.device.library_bytes",
         absl::StrCat(device.library_bytes, " must be 0 or more and less than memory_bytes ",
                      device.memory_bytes, "; run with fewer slots per node")});
  }
  CheckPositive("device.matmul_flops_per_s", device.matmul_flops_per_s, issues);
  CheckPositive("device.memory_bytes_per_s", device.memory_bytes_per_s, issues);
  CheckNotNegative("device.op_overhead_s", device.op_overhead_s, issues);
  CheckNotNegative("intra_node.latency_s", cluster.intra_node.latency_s, issues);
  CheckPositive("intra_node.bytes_per_s", cluster.intra_node.bytes_per_s, issues);
  // A machine without a network has no inter-node link to describe.
  if (cluster.nodes > 1) {
    CheckNotNegative("inter_node.latency_s", cluster.inter_node.latency_s, issues);
    CheckPositive("inter_node.bytes_per_s", cluster.inter_node.bytes_per_s, issues);
  }
  return issues;
}

absl::Status CheckCluster(const Cluster& cluster) {
  return FirstIssue(ClusterIssues(cluster));
}

double CoreSharing(const Cluster& cluster, int workers) {
  if (cluster.cores_per_node < 1) return 1;
  const int on_node = std::min(workers, cluster.slots_per_node);
  return std::max(1.0, static_cast<double>(on_node) / cluster.cores_per_node);
}

}  // namespace weft
