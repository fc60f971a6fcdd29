#include "plan/spec/cluster.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Issues = std::vector<SpecIssue>;

// More workers than anyone has; keeps products of degrees within int64_t.
constexpr int64_t kMaxSlots = int64_t{1} << 20;

constexpr int kMaxComputeUnits = 1 << 16;

// Nodes with 32 NICs for 8 devices exist.
constexpr int kNicsPerSlot = 8;

// Clocks above the data sheet's and rounding of its figures.
constexpr double kOverPeak = 1.1;

void CheckCounts(const Cluster& cluster, Issues& issues) {
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
  const int64_t most_nics = std::max<int64_t>(64, int64_t{kNicsPerSlot} * cluster.slots_per_node);
  if (cluster.nics_per_node < 0 || cluster.nics_per_node > most_nics) {
    issues.push_back({"cluster.nics_per_node",
                      absl::StrCat(cluster.nics_per_node, " must be 0 (one per slot) to ",
                                   most_nics, " for ", slots_key, " ", cluster.slots_per_node)});
  }
}

// These limits refuse values that no machine has and that would make sums not finite.
constexpr double kLeastRate = 1;  // FLOP/s and bytes/s
constexpr double kMostRate = 1e24;
constexpr double kLeastSeconds = 1e-12;
constexpr double kMostSeconds = 1e6;
constexpr double kMostHours = 1e12;
constexpr double kLeastPrice = 1e-9;  // of an hour, in whatever money
constexpr double kMostPrice = 1e12;
constexpr double kLeastEfficiency = 1e-4;
constexpr int64_t kMostBytes = int64_t{1} << 52;

void CheckRange(absl::string_view field, double value, double least, double most, Issues& issues) {
  if (value >= least && value <= most) return;
  issues.push_back({absl::StrCat("cluster.", field),
                    absl::StrCat(value, " is out of range; use ", least, " to ", most)});
}

void CheckPositive(absl::string_view field, double value, double least, double most,
                   Issues& issues) {
  if (std::isfinite(value) && value > 0) return CheckRange(field, value, least, most, issues);
  issues.push_back({absl::StrCat("cluster.", field),
                    absl::StrCat(value,
                                 " is not a positive number; measure it, or take a "
                                 "profile of configs/clusters")});
}

void CheckRate(absl::string_view field, double value, Issues& issues) {
  CheckPositive(field, value, kLeastRate, kMostRate, issues);
}

// `most`: of what is measured as `what`; 0 is always allowed, less than `least` is not.
void CheckNotNegative(absl::string_view field, double value, absl::string_view what, double least,
                      double most, Issues& issues) {
  if (value == 0) return;
  if (std::isfinite(value) && value > 0) return CheckRange(field, value, least, most, issues);
  issues.push_back(
      {absl::StrCat("cluster.", field), absl::StrCat(value, " is not ", what, "; use 0 or more")});
}

void CheckEfficiency(absl::string_view field, double value, Issues& issues) {
  if (value >= kLeastEfficiency && value <= 1) return;  // false for NaN
  issues.push_back(
      {absl::StrCat("cluster.device.efficiency.", field),
       absl::StrCat(value, " is not a share of a peak; use ", kLeastEfficiency, " to 1")});
}

void CheckMemory(const Cluster& cluster, Issues& issues) {
  const DeviceProfile& device = cluster.device;
  if (device.memory_bytes < 1) {
    issues.push_back({"cluster.device.memory_bytes",
                      absl::StrCat(device.memory_bytes,
                                   " is too little; use the bytes that one worker may take")});
  }
  if (device.memory_bytes > kMostBytes || cluster.host_memory_bytes > kMostBytes) {
    const bool of_device = device.memory_bytes > kMostBytes;
    issues.push_back({of_device ? "cluster.device.memory_bytes" : "cluster.host_memory_bytes",
                      absl::StrCat(of_device ? device.memory_bytes : cluster.host_memory_bytes,
                                   " is more than any machine has; use at most ", kMostBytes)});
  }
  if (device.library_bytes < 0 ||
      (device.memory_bytes >= 1 && device.library_bytes >= device.memory_bytes)) {
    issues.push_back(
        {"cluster.device.library_bytes",
         absl::StrCat(device.library_bytes, " must be 0 or more and less than memory_bytes ",
                      device.memory_bytes, "; run with fewer slots per node")});
  }
  if (cluster.host_memory_bytes < 0) {
    issues.push_back({"cluster.host_memory_bytes",
                      absl::StrCat(cluster.host_memory_bytes,
                                   " is negative; use the memory of a node, or 0 if unknown")});
  }
  if (cluster.host_library_bytes < 0 || cluster.host_library_bytes > kMostBytes) {
    issues.push_back(
        {"cluster.host_library_bytes",
         absl::StrCat(cluster.host_library_bytes, " is no memory; use 0 to ", kMostBytes)});
  }
}

void CheckRates(const DeviceProfile& device, Issues& issues) {
  CheckRate("device.peak_flops_per_s.fp32", device.peak_flops_per_s.fp32, issues);
  CheckNotNegative("device.peak_flops_per_s.bf16", device.peak_flops_per_s.bf16, "a rate",
                   kLeastRate, kMostRate, issues);
  CheckNotNegative("device.peak_flops_per_s.fp8", device.peak_flops_per_s.fp8, "a rate", kLeastRate,
                   kMostRate, issues);
  CheckRate("device.peak_memory_bytes_per_s", device.peak_memory_bytes_per_s, issues);
  CheckEfficiency("matmul_fp32", device.matmul_efficiency.fp32, issues);
  CheckEfficiency("matmul_bf16", device.matmul_efficiency.bf16, issues);
  CheckEfficiency("matmul_fp8", device.matmul_efficiency.fp8, issues);
  CheckEfficiency("attention", device.attention_efficiency, issues);
  CheckEfficiency("streaming", device.streaming_efficiency, issues);
  CheckNotNegative("device.op_overhead_s", device.op_overhead_s, "a time", kLeastSeconds,
                   kMostSeconds, issues);
  if (device.compute_units < 0 || device.compute_units > kMaxComputeUnits) {
    issues.push_back(
        {"cluster.device.compute_units",
         absl::StrCat(device.compute_units, " must be 0 (none) to ", kMaxComputeUnits)});
  }
}

void CheckMatmuls(const DeviceProfile& device, Issues& issues) {
  for (size_t i = 0; i < device.matmuls.size(); ++i) {
    const MatmulPoint& point = device.matmuls[i];
    const std::string item = absl::StrCat("device.matmuls[", i, "]");
    if (point.m < 1 || point.n < 1 || point.k < 1) {
      issues.push_back({absl::StrCat("cluster.", item),
                        absl::StrCat(point.m, " x ", point.n, " x ", point.k,
                                     " is not a product; m, n and k are 1 or more")});
    }
    const std::string rate = absl::StrCat(item, ".flops_per_s");
    CheckRate(rate, point.flops_per_s, issues);
    const double peak = device.peak_flops_per_s.of(point.precision);
    if (!(point.flops_per_s > kOverPeak * peak)) continue;
    issues.push_back(
        {absl::StrCat("cluster.", rate),
         absl::StrCat(point.flops_per_s, " is above device.peak_flops_per_s.",
                      point.precision == Precision::kFp16 ? "bf16" : WordOf(point.precision), " ",
                      peak, "; correct the one that is wrong")});
  }
}

void CheckCollectives(const Cluster& cluster, Issues& issues) {
  for (size_t i = 0; i < cluster.collectives.size(); ++i) {
    const CollectivePoint& point = cluster.collectives[i];
    const std::string item = absl::StrCat("collectives[", i, "]");
    if (point.ranks < 2) {
      issues.push_back({absl::StrCat("cluster.", item, ".ranks"),
                        absl::StrCat(point.ranks, " is too few; use 2 or more")});
    }
    if (point.nodes < 1 || (point.ranks >= 2 && point.ranks % point.nodes != 0)) {
      issues.push_back({absl::StrCat("cluster.", item, ".nodes"),
                        absl::StrCat(point.nodes, " does not divide the ", point.ranks,
                                     " ranks; use the number of nodes that they were spread over "
                                     "evenly")});
    }
    if (point.bytes < 1) {
      issues.push_back({absl::StrCat("cluster.", item, ".bytes"),
                        absl::StrCat(point.bytes, " is too few; use 1 or more")});
    }
    CheckPositive(absl::StrCat(item, ".seconds"), point.seconds, kLeastSeconds, kMostSeconds,
                  issues);
  }
}

}  // namespace

double PerPrecision::of(Precision precision) const {
  switch (precision) {
    case Precision::kFp32:
      return fp32;
    case Precision::kBf16:
    case Precision::kFp16:
      return bf16;
    case Precision::kFp8:
      return fp8;
  }
  CHECK(false);
  return 0;
}

double DeviceProfile::MatmulFlopsPerS(Precision precision) const {
  return peak_flops_per_s.of(precision) * matmul_efficiency.of(precision);
}

double DeviceProfile::AttentionFlopsPerS(Precision precision) const {
  const Precision computed = precision == Precision::kFp8 ? Precision::kBf16 : precision;
  return peak_flops_per_s.of(computed) * attention_efficiency;
}

Words WordsOf(BackendKind) {
  static constexpr absl::string_view kWords[] = {"cpu", "cuda"};
  return kWords;
}

Words WordsOf(Collective) {
  static constexpr absl::string_view kWords[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                 "send_receive"};
  return kWords;
}

double Cluster::InterNodeBytesPerS(int talking) const {
  const double nics_each = static_cast<double>(nics()) / talking;
  const double own = std::max(1.0, static_cast<double>(nics()) / slots_per_node);
  return inter_node.bytes_per_s * std::min(own, nics_each);
}

absl::StatusOr<BackendKind> ParseBackend(absl::string_view name) {
  return ParseWord<BackendKind>(name, "a backend");
}

absl::string_view SlotsKey(BackendKind backend) {
  return backend == BackendKind::kCpu ? "cluster.slots" : "cluster.gpus_per_node";
}

std::vector<SpecIssue> ClusterIssues(const Cluster& cluster) {
  Issues issues;
  CheckCounts(cluster, issues);
  CheckMemory(cluster, issues);
  CheckRates(cluster.device, issues);
  CheckNotNegative("intra_node.latency_s", cluster.intra_node.latency_s, "a time", kLeastSeconds,
                   kMostSeconds, issues);
  CheckRate("intra_node.bytes_per_s", cluster.intra_node.bytes_per_s, issues);
  // A machine without a network has no inter-node link to describe.
  if (cluster.nodes > 1 || cluster.inter_node != LinkProfile{}) {
    CheckNotNegative("inter_node.latency_s", cluster.inter_node.latency_s, "a time", kLeastSeconds,
                     kMostSeconds, issues);
    CheckRate("inter_node.bytes_per_s", cluster.inter_node.bytes_per_s, issues);
  }
  CheckNotNegative("storage.node_bytes_per_s", cluster.storage.node_bytes_per_s, "a rate",
                   kLeastRate, kMostRate, issues);
  CheckNotNegative("storage.total_bytes_per_s", cluster.storage.total_bytes_per_s, "a rate",
                   kLeastRate, kMostRate, issues);
  CheckNotNegative("failures.device_mtbf_hours", cluster.failures.device_mtbf_hours, "a time",
                   kLeastSeconds, kMostHours, issues);
  CheckNotNegative("failures.restart_s", cluster.failures.restart_s, "a time", kLeastSeconds,
                   kMostSeconds, issues);
  CheckNotNegative("price_per_device_hour", cluster.price_per_device_hour, "a price", kLeastPrice,
                   kMostPrice, issues);
  CheckMatmuls(cluster.device, issues);
  CheckCollectives(cluster, issues);
  return issues;
}

absl::Status CheckCluster(const Cluster& cluster) {
  return FirstIssue(ClusterIssues(cluster));
}

absl::Status CheckPrecision(const DeviceProfile& device, Precision precision) {
  if (device.Offers(precision)) return absl::OkStatus();
  std::vector<absl::string_view> offered;
  for (const Precision other :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    if (device.Offers(other)) offered.push_back(WordOf(other));
  }
  return absl::InvalidArgumentError(absl::StrCat(WordOf(precision), " is not offered by ",
                                                 device.name, "; use ",
                                                 absl::StrJoin(offered, ", ")));
}

bool HasMemoryOfProfile(int64_t free_bytes, int64_t profile_bytes) {
  return free_bytes >= profile_bytes - profile_bytes / 100;
}

double CoreSharing(const Cluster& cluster, int workers) {
  if (cluster.cores_per_node < 1) return 1;
  const int on_node = std::min(workers, cluster.slots_per_node);
  return std::max(1.0, static_cast<double>(on_node) / cluster.cores_per_node);
}

}  // namespace weft
