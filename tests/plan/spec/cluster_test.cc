#include "plan/spec/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace weft {
namespace {

Cluster TwoCoreMachine() {
  Cluster cluster;
  cluster.name = "two-core";
  cluster.slots_per_node = 4;
  cluster.cores_per_node = 2;
  cluster.device.name = "core";
  cluster.device.memory_bytes = int64_t{1} << 30;
  cluster.device.library_bytes = int64_t{1} << 26;
  cluster.device.peak_flops_per_s.fp32 = 5e10;
  cluster.device.peak_memory_bytes_per_s = 1e10;
  cluster.device.op_overhead_s = 1e-6;
  cluster.intra_node = {.latency_s = 1e-6, .bytes_per_s = 5e9};
  return cluster;
}

struct WrongCluster {
  void (*change)(Cluster&);
  const char* message;
};

const WrongCluster kWrongClusters[] = {
    {[](Cluster& c) { c.nodes = 0; }, "cluster.nodes: 0 is too few; use 1 or more"},
    {[](Cluster& c) { c.slots_per_node = 0; }, "cluster.slots: 0 is too few; use 1 or more"},
    {[](Cluster& c) {
       c.slots_per_node = -1;
       c.device.backend = BackendKind::kCuda;
     },
     "cluster.gpus_per_node: -1 is too few; use 1 or more"},
    {[](Cluster& c) {
       c.nodes = 1 << 20;
       c.inter_node = {.latency_s = 1e-6, .bytes_per_s = 1e9};
     },
     "cluster.nodes: 1048576 x cluster.slots 4 = 4194304 workers; use at most 1048576"},
    {[](Cluster& c) { c.cores_per_node = -1; },
     "cluster.cores_per_node: -1 is negative; use the number of cores that the slots of a node "
     "share, or 0 for one device per slot"},
    {[](Cluster& c) { c.device.memory_bytes = 0; },
     "cluster.device.memory_bytes: 0 is too little; use the bytes that one worker may take"},
    {[](Cluster& c) { c.device.library_bytes = c.device.memory_bytes; },
     "cluster.device.library_bytes: 1073741824 must be 0 or more and less than memory_bytes "
     "1073741824; run with fewer slots per node"},
    {[](Cluster& c) { c.device.peak_flops_per_s.fp32 = 0; },
     "cluster.device.peak_flops_per_s.fp32: 0 is not a positive number; measure it, or take a "
     "profile of configs/clusters"},
    {[](Cluster& c) { c.device.peak_memory_bytes_per_s = std::nan(""); },
     "cluster.device.peak_memory_bytes_per_s: nan is not a positive number; measure it, or take "
     "a "
     "profile of configs/clusters"},
    {[](Cluster& c) { c.device.op_overhead_s = -1e-6; },
     "cluster.device.op_overhead_s: -1e-06 is not a time; use 0 or more"},
    {[](Cluster& c) { c.intra_node.latency_s = std::numeric_limits<double>::infinity(); },
     "cluster.intra_node.latency_s: inf is not a time; use 0 or more"},
    {[](Cluster& c) { c.intra_node.bytes_per_s = 0; },
     "cluster.intra_node.bytes_per_s: 0 is not a positive number; measure it, or take a "
     "profile of configs/clusters"},
    {[](Cluster& c) { c.nics_per_node = -1; },
     "cluster.nics_per_node: -1 must be 0 (one per slot) to 64 for cluster.slots 4"},
    {[](Cluster& c) { c.host_memory_bytes = -1; },
     "cluster.host_memory_bytes: -1 is negative; use the memory of a node, or 0 if unknown"},
    {[](Cluster& c) { c.device.attention_efficiency = std::nan(""); },
     "cluster.device.efficiency.attention: nan is not a share of a peak; use 0.0001 to 1"},
    {[](Cluster& c) { c.device.matmul_efficiency.fp8 = 1.01; },
     "cluster.device.efficiency.matmul_fp8: 1.01 is not a share of a peak; use 0.0001 to 1"},
    {[](Cluster& c) { c.device.compute_units = 1 << 20; },
     "cluster.device.compute_units: 1048576 must be 0 (none) to 65536"},
    {[](Cluster& c) {
       c.device.matmuls = {{8, 8, 8, Precision::kBf16, 1e9}};
     },
     "cluster.device.matmuls[0].flops_per_s: 1e+09 is above device.peak_flops_per_s.bf16 0; "
     "correct the one that is wrong"},
    {[](Cluster& c) {
       c.collectives = {{Collective::kAllReduce, 1, 8, 1e-3}};
     },
     "cluster.collectives[0].ranks: 1 is too few; use 2 or more"},
    {[](Cluster& c) { c.failures.restart_s = -1; },
     "cluster.failures.restart_s: -1 is not a time; use 0 or more"},
    {[](Cluster& c) { c.device.op_overhead_s = 1e300; },
     "cluster.device.op_overhead_s: 1e+300 is out of range; use 1e-12 to 1e+06"},
    {[](Cluster& c) { c.device.peak_flops_per_s.fp32 = 1e-300; },
     "cluster.device.peak_flops_per_s.fp32: 1e-300 is out of range; use 1 to 1e+24"},
    {[](Cluster& c) { c.device.memory_bytes = int64_t{1} << 62; },
     "cluster.device.memory_bytes: 4611686018427387904 is more than any machine has; use at most "
     "4503599627370496"},
    {[](Cluster& c) { c.nodes = 2; },
     "cluster.inter_node.bytes_per_s: 0 is not a positive number; measure it, or take a "
     "profile of configs/clusters"},
};

TEST(CheckCluster, NamesTheFieldThatMakesNoSense) {
  for (const WrongCluster& c : kWrongClusters) {
    Cluster cluster = TwoCoreMachine();
    c.change(cluster);
    EXPECT_EQ(CheckCluster(cluster), absl::InvalidArgumentError(c.message));
  }
}

TEST(ParseBackend, TakesTheNamesOfTheBackendsAndListsThem) {
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kCuda}) {
    EXPECT_EQ(ParseBackend(WordOf(backend)).value(), backend);
  }
  EXPECT_EQ(ParseBackend("tpu").status(),
            absl::InvalidArgumentError("\"tpu\" is not a backend; use cpu or cuda"));
}

TEST(CheckCluster, AcceptsOneMachineWithoutANetwork) {
  EXPECT_TRUE(CheckCluster(TwoCoreMachine()).ok());
}

TEST(ClusterIssues, ReportsAllFieldsAtOnce) {
  std::vector<std::string> keys;
  for (const SpecIssue& issue : ClusterIssues(Cluster{})) keys.push_back(issue.key);
  EXPECT_THAT(keys, testing::ElementsAre("cluster.device.memory_bytes",
                                         "cluster.device.peak_flops_per_s.fp32",
                                         "cluster.device.peak_memory_bytes_per_s",
                                         "cluster.intra_node.bytes_per_s"));
}

TEST(DeviceProfile, SustainsItsEfficienciesOfItsPeaks) {
  DeviceProfile device;
  device.peak_flops_per_s = {10, 100, 200};
  device.matmul_efficiency = {0.5, 0.7, 0.6};
  device.attention_efficiency = 0.4;
  device.peak_memory_bytes_per_s = 50;
  device.streaming_efficiency = 0.9;
  EXPECT_DOUBLE_EQ(device.MatmulFlopsPerS(Precision::kFp32), 5);
  EXPECT_DOUBLE_EQ(device.MatmulFlopsPerS(Precision::kBf16), 70);
  EXPECT_DOUBLE_EQ(device.MatmulFlopsPerS(Precision::kFp16), 70);
  EXPECT_DOUBLE_EQ(device.MatmulFlopsPerS(Precision::kFp8), 120);
  EXPECT_DOUBLE_EQ(device.AttentionFlopsPerS(Precision::kFp32), 4);
  EXPECT_DOUBLE_EQ(device.AttentionFlopsPerS(Precision::kFp8), 40);  // computed in bf16
  EXPECT_DOUBLE_EQ(device.StreamBytesPerS(), 45);
}

TEST(CheckPrecision, NamesWhatTheDeviceOffers) {
  DeviceProfile device;
  device.name = "A100";
  device.peak_flops_per_s = {19.5e12, 312e12, 0};
  EXPECT_TRUE(CheckPrecision(device, Precision::kFp16).ok());
  EXPECT_EQ(CheckPrecision(device, Precision::kFp8),
            absl::InvalidArgumentError("fp8 is not offered by A100; use fp32, bf16, fp16"));
}

TEST(Cluster, SharesTheNicsOfANodeAmongWhoeverTalks) {
  Cluster cluster;
  cluster.slots_per_node = 8;
  cluster.inter_node.bytes_per_s = 40;
  EXPECT_EQ(cluster.InterNodeBytesPerS(1), 40);  // one NIC per slot
  EXPECT_EQ(cluster.InterNodeBytesPerS(8), 40);
  cluster.nics_per_node = 2;
  EXPECT_EQ(cluster.InterNodeBytesPerS(1), 40);  // not more than one NIC
  EXPECT_EQ(cluster.InterNodeBytesPerS(4), 20);
  EXPECT_EQ(cluster.InterNodeBytesPerS(8), 10);
  cluster.nics_per_node = 32;  // four of its own for each slot
  EXPECT_EQ(cluster.InterNodeBytesPerS(1), 160);
  EXPECT_EQ(cluster.InterNodeBytesPerS(8), 160);
}

TEST(CoreSharing, SlowsWorkersOnceThereAreMoreThanCores) {
  Cluster cluster = TwoCoreMachine();
  EXPECT_EQ(CoreSharing(cluster, 1), 1);
  EXPECT_EQ(CoreSharing(cluster, 2), 1);
  EXPECT_EQ(CoreSharing(cluster, 3), 1.5);
  EXPECT_EQ(CoreSharing(cluster, 4), 2);
  cluster.nodes = 2;  // the first node is full
  EXPECT_EQ(CoreSharing(cluster, 8), 2);
  cluster.cores_per_node = 0;  // one device per slot
  EXPECT_EQ(CoreSharing(cluster, 8), 1);
}

}  // namespace
}  // namespace weft
