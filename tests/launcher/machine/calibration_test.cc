// The pure half of `weft calibrate`: from what probes print to a cluster profile.
#include "launcher/machine/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kRates[] = R"({"backend": "cpu", "versions": "x",
  "devices": [{"name": "EPYC", "memory_bytes": 8000, "compute_units": 0}],
  "library_bytes": 30000000,
  "rates": {"stream_bytes_per_s": 20e9, "operation_bytes_per_s": 10e9,
            "attention_flops_per_s": 30e9, "attention_precision": "fp32",
            "op_overhead_s": 1.23456e-8, "matmuls": [
    {"m": 64, "n": 64, "k": 64, "precision": "fp32", "flops_per_s": 20e9},
    {"m": 256, "n": 512, "k": 512, "precision": "fp32", "flops_per_s": 100e9},
    {"m": 1024, "n": 512, "k": 512, "precision": "fp32", "flops_per_s": 80e9},
    {"m": 4096, "n": 512, "k": 512, "precision": "fp32", "flops_per_s": 90e9}]}})";

constexpr char kLinks[] = R"({"ranks": 4, "library_bytes": 200000000, "collectives": [
    {"collective": "send_receive", "ranks": 2, "bytes": 1000000, "seconds": 0.00101},
    {"collective": "all_reduce", "ranks": 4, "bytes": 4000000, "seconds": 0.00606}]})";

MachineFacts Facts() {
  MachineFacts facts;
  facts.name = "lab";
  facts.slots = 4;
  facts.cores = 2;
  facts.total_memory_bytes = int64_t{16} << 30;
  facts.free_memory_bytes = int64_t{8} << 30;
  facts.storage_bytes_per_s = 5e8;
  return facts;
}

TEST(ClusterFromProbes, TakesPeaksFromTheBestAndEfficienciesFromTheRest) {
  const auto cluster = ClusterFromProbes(Facts(), kRates, kLinks);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const DeviceProfile& device = cluster->device;
  EXPECT_EQ(cluster->name, "lab");
  EXPECT_EQ(device.name, "EPYC");
  EXPECT_EQ(device.peak_flops_per_s, (PerPrecision{.fp32 = 100e9}));
  EXPECT_EQ(device.matmul_efficiency.fp32, 0.9);  // of the two largest, the faster
  EXPECT_EQ(device.attention_efficiency, 0.3);
  EXPECT_EQ(device.peak_memory_bytes_per_s, 20e9);
  EXPECT_EQ(device.streaming_efficiency, 0.5);
  EXPECT_EQ(device.op_overhead_s, 1.235e-8);
  EXPECT_EQ(device.matmuls.size(), 4);
  EXPECT_EQ(cluster->collectives.size(), 2);
  EXPECT_EQ(cluster->storage.node_bytes_per_s, 5e8);
}

TEST(ClusterFromProbes, OffersThePrecisionsWhoseProductsWereTimed) {
  std::string rates = kRates;
  rates.replace(rates.find("{\"m\": 64"), 0,
                R"({"m": 1024, "n": 512, "k": 512, "precision": "fp8", "flops_per_s": 400e9},
                   {"m": 64, "n": 64, "k": 64, "precision": "fp8", "flops_per_s": 50e9},)");
  const auto cluster = ClusterFromProbes(Facts(), rates, kLinks);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device.peak_flops_per_s, (PerPrecision{.fp32 = 100e9, .fp8 = 400e9}));
  EXPECT_EQ(cluster->device.matmul_efficiency.fp8, 1);
}

TEST(ClusterFromProbes, DealsTheFreeMemoryOutToTheSlots) {
  const auto cluster = ClusterFromProbes(Facts(), kRates, kLinks);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->slots_per_node, 4);
  EXPECT_EQ(cluster->cores_per_node, 2);
  EXPECT_EQ(cluster->host_memory_bytes, int64_t{16} << 30);
  EXPECT_LE(4 * cluster->device.memory_bytes, int64_t{8} << 30);
  EXPECT_GE(4 * cluster->device.memory_bytes, int64_t{7} << 30);
  EXPECT_EQ(cluster->device.library_bytes, 400000000);  // twice what the larger probe held
}

TEST(ClusterFromProbes, LeavesAGpusLibrariesAQuarterMore) {
  MachineFacts facts = Facts();
  facts.backend = BackendKind::kCuda;
  facts.slots = 4;
  std::string links = kLinks;
  links.replace(links.find("200000000"), 9, "1600000000");
  std::string rates = kRates;
  rates.replace(rates.find("8000, \"compute_units\": 0"), 24, "8000000000, \"compute_units\": 132");
  const auto cluster = ClusterFromProbes(facts, rates, links);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device.library_bytes, 2000000000);
  EXPECT_EQ(cluster->device.compute_units, 132);
  EXPECT_EQ(cluster->device.memory_bytes, 8000000000);
  EXPECT_EQ(cluster->cores_per_node, 0);
}

TEST(ClusterFromProbes, LeaveAGpusLibrariesRoomForKernelsThatTheyLoadLater) {
  MachineFacts facts = Facts();
  facts.backend = BackendKind::kCuda;
  std::string rates = kRates;
  rates.replace(rates.find("8000,"), 4, "8000000000");
  const auto cluster = ClusterFromProbes(facts, rates, "");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device.library_bytes, int64_t{1} << 30);
}

TEST(ClusterFromProbes, TakeAttentionAsAShareOfThePeakOfItsPrecision) {
  std::string rates = kRates;
  rates.replace(rates.find("\"fp32\",\n"), 6, "\"bf16\"");
  EXPECT_EQ(ClusterFromProbes(Facts(), rates, "").status().message(),
            "no matrix product of bf16 was measured");
  rates.replace(rates.find("{\"m\": 64"), 0,
                R"({"m": 1024, "n": 512, "k": 512, "precision": "bf16", "flops_per_s": 300e9},)");
  const auto cluster = ClusterFromProbes(Facts(), rates, "");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device.attention_efficiency, 0.1);
}

TEST(ClusterFromProbes, OfOneWorkerNeedsNoLinks) {
  MachineFacts facts = Facts();
  facts.slots = 1;
  const auto cluster = ClusterFromProbes(facts, kRates, "");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(cluster->collectives.empty());
  EXPECT_EQ(cluster->device.library_bytes, 60000000);
}

// Pages of programs and libraries are there once, however many workers a host has.
TEST(ClusterFromProbes, CountOnceForAHostWhatItsWorkersShare) {
  std::string rates = kRates;
  std::string links = kLinks;
  rates.replace(rates.find("\"library_bytes\""), 0, "\"shared_bytes\": 25000000, ");
  links.replace(links.find("\"library_bytes\""), 0, "\"shared_bytes\": 32000000, ");
  const auto cluster = ClusterFromProbes(Facts(), rates, links);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->host_library_bytes, 32000000 + (int64_t{96} << 20));
  EXPECT_EQ(cluster->device.library_bytes, 2 * (200000000 - 32000000));
  EXPECT_LE(4 * cluster->device.memory_bytes + cluster->host_library_bytes, int64_t{8} << 30);
}

// A transfer that takes 10 us and a byte 1 ns among groups of one rank per node.
std::string LinksOnHosts(int nodes, const char* backend = "cpu") {
  return absl::StrCat(R"({"backend": ")", backend, R"(", "ranks": )", 2 * nodes, R"(, "nodes": )",
                      nodes, R"(, "collectives": [
    {"collective": "send_receive", "ranks": 2, "nodes": 1, "bytes": 1000000, "seconds": 1e-5},
    {"collective": "send_receive", "ranks": 2, "nodes": 2, "bytes": 1000, "seconds": 1.1e-5},
    {"collective": "send_receive", "ranks": 2, "nodes": 2, "bytes": 1000000, "seconds": 1.01e-3},
    {"collective": "all_reduce", "ranks": 2, "nodes": 2, "bytes": 1000000, "seconds": 1.02e-3},
    {"collective": "all_reduce", "ranks": 4, "nodes": 2, "bytes": 1000000, "seconds": 5e-3}]})");
}

TEST(AddLinksAcrossHosts, FitsTheNetworkByOneRankPerNodeAndKeepsThePoints) {
  absl::StatusOr<Cluster> cluster = ClusterFromProbes(Facts(), kRates, kLinks);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const LinkProfile inside = cluster->intra_node;
  const size_t inside_points = cluster->collectives.size();
  ASSERT_EQ(AddLinksAcrossHosts(LinksOnHosts(2), 1, &*cluster), absl::OkStatus());
  EXPECT_NEAR(cluster->inter_node.latency_s, 1e-5, 1e-8);
  // Two ranks of a node shared its one NIC.
  EXPECT_NEAR(cluster->inter_node.bytes_per_s, 2e9, 1e7);
  EXPECT_EQ(cluster->nics_per_node, 1);
  EXPECT_EQ(cluster->intra_node, inside);
  EXPECT_EQ(cluster->collectives.size(), inside_points + 4);
  EXPECT_EQ(cluster->collectives.back().nodes, 2);
  absl::StatusOr<Cluster> own = ClusterFromProbes(Facts(), kRates, kLinks);
  ASSERT_EQ(AddLinksAcrossHosts(LinksOnHosts(2), 0, &*own), absl::OkStatus());
  EXPECT_NEAR(own->inter_node.bytes_per_s, 1e9, 1e7) << "a NIC for each";
}

TEST(AddLinksAcrossHosts, RefusesWhatDoesNotFit) {
  const absl::StatusOr<Cluster> cluster = ClusterFromProbes(Facts(), kRates, kLinks);
  ASSERT_TRUE(cluster.ok());
  for (const auto& [json, words] : std::vector<std::pair<std::string, std::string>>{
           {LinksOnHosts(1), "is of one host; links between hosts take two"},
           {LinksOnHosts(2, "cuda"), "is of backend cuda, the profile of cpu"},
           {"{}", "is not what a run's measuring leaves"},
           {"no JSON", "is not what a run's measuring leaves"}}) {
    Cluster copy = *cluster;
    const absl::Status status = AddLinksAcrossHosts(json, 1, &copy);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), testing::HasSubstr(words));
  }
}

TEST(ClusterFromProbes, RefusesWhatIsNotAProbesAnswer) {
  for (const char* text : {"", "{}", "[1]", "not json", "{\"rates\": {}}"}) {
    EXPECT_EQ(ClusterFromProbes(Facts(), text, "").status().code(), absl::StatusCode::kInternal)
        << text;
  }
  MachineFacts facts = Facts();
  facts.free_memory_bytes = 0;
  EXPECT_THAT(ClusterFromProbes(facts, kRates, kLinks).status().message(),
              testing::HasSubstr("cluster.device.memory_bytes: 0 is too little"));
}

TEST(FitLink, FindsTheLinkThatMadeThePoints) {
  std::vector<CollectivePoint> points;
  for (const int64_t bytes : {4, 4096, 1 << 16, 1 << 20, 1 << 23}) {
    const auto size = static_cast<double>(bytes);
    points.push_back({Collective::kSendReceive, 2, bytes, 1e-5 + size / 2e9});
    points.push_back({Collective::kAllReduce, 4, bytes, 6 * (1e-5 + size / 4 / 2e9)});
    points.push_back({Collective::kAllGather, 4, bytes, 3 * (1e-5 + size / 4 / 2e9)});
  }
  const LinkProfile link = FitLink(points);
  EXPECT_NEAR(link.latency_s, 1e-5, 1e-8);
  EXPECT_NEAR(link.bytes_per_s, 2e9, 1e6);
}

TEST(FitLink, IsNeverNegative) {
  // The more bytes the faster: no link does that.
  const LinkProfile link = FitLink(
      {{Collective::kSendReceive, 2, 1000, 1e-3}, {Collective::kSendReceive, 2, 1000000, 1e-4}});
  EXPECT_GE(link.latency_s, 0);
  EXPECT_GT(link.bytes_per_s, 0);
}

}  // namespace
}  // namespace weft
