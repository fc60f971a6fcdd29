#include "plan/cluster.h"

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

TEST(CheckCluster, NamesTheFieldThatMakesNoSense) {
  struct Case {
    void (*change)(Cluster&);
    const char* message;
  };
  const Case cases[] = {
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
      {[](Cluster& c) { c.nodes = 2; },
       "cluster.inter_node.bytes_per_s: 0 is not a positive number; measure it, or take a "
       "profile of configs/clusters"},
  };
  for (const Case& c : cases) {
    Cluster cluster = TwoCoreMachine();
    c.change(cluster);
    EXPECT_EQ(CheckCluster(cluster), absl::InvalidArgumentError(c.message));
  }
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
