// The machine as data: devices, links, storage, how many of each, how often they fail. Filled from
// configs/clusters by the launcher, or measured by `weft calibrate`; the planner reads nothing else
// about hardware. Pure values.
//
// Peaks are the data sheet's (or the best that was measured); what is reached of them in training
// is an efficiency beside them, so that a new device needs its data sheet and the efficiencies of
// its nearest relative. docs/clusters.md explains every key.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/precision.h"
#include "plan/spec/spec_issue.h"
#include "plan/spec/words.h"

namespace weft {

enum class BackendKind { kCpu, kCuda };

// One number for each precision of matrix products; fp16 goes with bf16 everywhere.
struct PerPrecision {
  double fp32 = 0;
  double bf16 = 0;
  double fp8 = 0;

  double of(Precision precision) const;
  friend bool operator==(const PerPrecision&, const PerPrecision&) = default;
};

// A measured product of [m, k] and [k, n].
struct MatmulPoint {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Precision precision = Precision::kFp32;
  double flops_per_s = 0;
  friend bool operator==(const MatmulPoint&, const MatmulPoint&) = default;
};

// One worker's device: a GPU, or a CPU slot.
struct DeviceProfile {
  std::string name;
  BackendKind backend = BackendKind::kCpu;
  int64_t memory_bytes = 0;            // what one worker may use in all
  int64_t library_bytes = 0;           // of it, taken by libraries, contexts, the process itself
  int compute_units = 0;               // that work in waves (SMs); 0 = none, no quantisation
  PerPrecision peak_flops_per_s = {};  // dense products, one worker alone; 0 = not offered
  double peak_memory_bytes_per_s = 0;
  PerPrecision matmul_efficiency = {1, 1, 1};  // large products, share of the peak
  double attention_efficiency = 1;             // fused attention, share of the peak
  double streaming_efficiency = 1;             // of the memory's peak
  double op_overhead_s = 0;                    // host time to start one operation
  std::vector<MatmulPoint> matmuls = {};       // measured; may be empty

  int64_t usable_bytes() const { return memory_bytes - library_bytes; }
  bool Offers(Precision precision) const { return peak_flops_per_s.of(precision) > 0; }
  // Sustained by large products; 0 if the precision is not offered.
  double MatmulFlopsPerS(Precision precision) const;
  // Sustained by attention, which is computed in bf16 where linear layers are in fp8.
  double AttentionFlopsPerS(Precision precision) const;
  double StreamBytesPerS() const { return peak_memory_bytes_per_s * streaming_efficiency; }
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// alpha-beta model of a link: seconds = latency_s + bytes / bytes_per_s. Achievable, one way, of
// one worker inside a node and of one NIC between nodes.
struct LinkProfile {
  double latency_s = 0;
  double bytes_per_s = 0;
  bool switch_reduces = false;  // the switch adds up all-reduces (NVLink SHARP)
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kSendReceive };
Words WordsOf(Collective);

// A measured collective among `ranks` workers, as many on each of `nodes` nodes; bytes of the full
// tensor.
struct CollectivePoint {
  Collective collective = Collective::kAllReduce;
  int ranks = 0;
  int64_t bytes = 0;
  double seconds = 0;
  int nodes = 1;
  friend bool operator==(const CollectivePoint&, const CollectivePoint&) = default;
};

// Checkpoints are written to storage at these rates. 0 = not stated.
struct StorageProfile {
  double node_bytes_per_s = 0;   // what one node writes
  double total_bytes_per_s = 0;  // what all nodes together write at most
  friend bool operator==(const StorageProfile&, const StorageProfile&) = default;
};

// 0 = not stated.
struct FailureProfile {
  double device_mtbf_hours = 0;  // mean time between stops of a job on one device
  double restart_s = 0;          // from a stop until steps are done again
  friend bool operator==(const FailureProfile&, const FailureProfile&) = default;
};

struct Cluster {
  std::string name;
  int nodes = 1;
  int slots_per_node = 1;  // workers a node can hold; a node is what intra_node connects
  int cores_per_node = 0;  // CPU backend: cores that the slots share; 0 = one device per slot
  int nics_per_node = 0;   // that the slots share; 0 = one per slot
  int64_t host_memory_bytes = 0;  // of a node; 0 = not stated
  // This much of a node is taken once however many workers it holds: weft, weftd, an agent, mpirun,
  // and the libraries' pages that workers share. It counts where a worker's memory is the host's.
  int64_t host_library_bytes = 0;
  DeviceProfile device;
  LinkProfile intra_node;  // between workers of one node
  LinkProfile inter_node;  // between nodes, per NIC
  StorageProfile storage;
  FailureProfile failures;
  double price_per_device_hour = 0;               // in whatever money; 0 = not stated
  std::vector<CollectivePoint> collectives = {};  // measured; may be empty

  int slots() const { return nodes * slots_per_node; }
  int nics() const { return nics_per_node > 0 ? nics_per_node : slots_per_node; }
  // Returns the rate that each of `talking` workers of a node gets when all of them talk to other
  // nodes at once: its share of the NICs, at most one NIC, or its own share where there are more
  // NICs than slots.
  // REQUIRES: talking >= 1.
  double InterNodeBytesPerS(int talking) const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

Words WordsOf(BackendKind);
absl::StatusOr<BackendKind> ParseBackend(absl::string_view name);

// The job.yaml key that says how many workers a node holds: "cluster.slots" for CPU slots,
// "cluster.gpus_per_node" for GPUs.
absl::string_view SlotsKey(BackendKind backend);

// Every field that makes no sense, alone or beside another; keys as "cluster.nodes",
// "cluster.device.memory_bytes", "cluster.device.matmuls[0].flops_per_s".
std::vector<SpecIssue> ClusterIssues(const Cluster& cluster);

// Returns the first of ClusterIssues (InvalidArgument), or OK.
absl::Status CheckCluster(const Cluster& cluster);

// InvalidArgument, with the precisions that there are, if the device does not offer this one.
absl::Status CheckPrecision(const DeviceProfile& device, Precision precision);

// Whether so much free memory of a GPU is as much as its profile says. Of a GPU that nobody uses
// the driver keeps a share for itself, by its version more or less (0.6 GiB of an H100's 79.6 in
// NVML's older counting), which a profile's library_bytes has room for: up to a hundredth may be
// missing.
bool HasMemoryOfProfile(int64_t free_bytes, int64_t profile_bytes);

// Returns by how much workers that share cores slow each other: max(1, slots in use / cores).
double CoreSharing(const Cluster& cluster, int workers);

}  // namespace weft
