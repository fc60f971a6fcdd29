// Cluster profiles: every one that weft ships is read, a profile comes back from its own text, and
// a wrong one is refused with file and line.
#include "launcher/job_file/cluster_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/value_text.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::string Folder() {
  return SourcePath("/configs/clusters");
}

// Reads `text` as lab.yaml; its issues into *issues.
Cluster Read(const std::string& text, std::string* issues) {
  Issues found;
  const std::optional<Value> tree = ParseYaml(text, "lab.yaml", 0, &found);
  Cluster cluster;
  if (tree) cluster = ReadCluster(*tree, {}, "", &found);
  *issues = found.Text();
  return cluster;
}

Cluster WholeCluster() {
  Cluster cluster;
  cluster.name = "lab: \"one\"";
  cluster.nodes = 3;
  cluster.slots_per_node = 8;
  cluster.cores_per_node = 16;
  cluster.nics_per_node = 4;
  cluster.host_memory_bytes = int64_t{1} << 40;
  cluster.device.name = "gpu";
  cluster.device.backend = BackendKind::kCuda;
  cluster.device.memory_bytes = 80000000000;
  cluster.device.library_bytes = 3000000001;
  cluster.device.compute_units = 132;
  cluster.device.peak_flops_per_s = {67e12, 989.4e12, 1979e12};
  cluster.device.peak_memory_bytes_per_s = 3.35e12;
  cluster.device.matmul_efficiency = {0.7, 1.0 / 3, 0.6};
  cluster.device.attention_efficiency = 0.45;
  cluster.device.streaming_efficiency = 0.85;
  cluster.device.op_overhead_s = 4.1e-6;
  cluster.device.matmuls = {{4096, 1024, 8192, Precision::kBf16, 6.1e14},
                            {17, 19, 23, Precision::kFp32, 1e9}};
  cluster.intra_node = {1e-5, 3.7e11, true};
  cluster.inter_node = {2e-5, 4.5e10, false};
  cluster.storage = {2e9, 1e11};
  cluster.failures = {50700, 300};
  cluster.price_per_device_hour = 2.49;
  cluster.collectives = {{Collective::kReduceScatter, 8, 1 << 20, 1.25e-4}};
  return cluster;
}

const char kLab[] =
    "name: lab\n"                                                        // 1
    "slots_per_node: 4\n"                                                // 2
    "nics_per_node: 1\n"                                                 // 3
    "device:\n"                                                          // 4
    "  name: gpu\n"                                                      // 5
    "  backend: cuda\n"                                                  // 6
    "  memory_bytes: 80e9\n"                                             // 7
    "  library_bytes: 3e9\n"                                             // 8
    "  compute_units: 108\n"                                             // 9
    "  peak_flops_per_s: {fp32: 19.5e12, bf16: 312e12}\n"                // 10
    "  peak_memory_bytes_per_s: 2e12\n"                                  // 11
    "  efficiency:\n"                                                    // 12
    "    matmul_fp32: 0.8\n"                                             // 13
    "    matmul_bf16: 0.7\n"                                             // 14
    "    attention: 0.5\n"                                               // 15
    "    streaming: 0.9\n"                                               // 16
    "  op_overhead_s: 4e-6\n"                                            // 17
    "  matmuls:\n"                                                       // 18
    "    - {m: 64, n: 64, k: 64, precision: fp32, flops_per_s: 1e12}\n"  // 19
    "intra_node: {latency_s: 1e-5, bytes_per_s: 2e11}\n"                 // 20
    "inter_node: {latency_s: 2e-5, bytes_per_s: 2e10}\n"                 // 21
    "failures: {device_mtbf_hours: 5e4, restart_s: 300}\n";              // 22

TEST(ClusterYaml, ComesBackFromItsOwnText) {
  std::string issues;
  EXPECT_TRUE(Read(LinesText(ClusterTree(WholeCluster()), 0), &issues) == WholeCluster());
  EXPECT_EQ(issues, "");
}

TEST(ClusterYaml, ComesBackWithoutWhatWasNotStated) {
  Cluster cluster;
  cluster.name = "one";
  cluster.device.name = "core";
  cluster.device.memory_bytes = 1 << 30;
  cluster.device.peak_flops_per_s.fp32 = 1e11;
  cluster.device.peak_memory_bytes_per_s = 1e10;
  cluster.intra_node = {0, 1e9, false};
  std::string issues;
  EXPECT_TRUE(Read(LinesText(ClusterTree(cluster), 0), &issues) == cluster);
  EXPECT_EQ(issues, "");
}

TEST(ClusterYaml, EveryShippedProfileIsReadAndNamedAsItsFile) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string name = entry.path().stem().string();
    names.insert(name);
    Issues issues;
    const Value node = Value::Scalar(name, {"job.yaml", 0, 1});
    const Cluster cluster = ReadCluster(node, {Folder()}, "", &issues);
    EXPECT_EQ(issues.Text(), "");
    EXPECT_EQ(cluster.name, name);
    // With a network: `--nodes 2` plans two of them.
    Cluster two = cluster;
    two.nodes = 2;
    EXPECT_TRUE(CheckCluster(two).ok()) << name << ": " << CheckCluster(two);
    // Nothing sustained above its peak, and a link between nodes no faster than one inside.
    EXPECT_LE(cluster.device.MatmulFlopsPerS(Precision::kFp32),
              cluster.device.peak_flops_per_s.fp32);
    EXPECT_LE(cluster.inter_node.bytes_per_s, cluster.intra_node.bytes_per_s) << name;
  }
  for (const char* name :
       {"a100-40gx8",  "a100-80gx8", "a10gx8",    "b200x8",    "b300x8",    "cpu",    "gb200-nvl72",
        "gb300-nvl72", "h100x8",     "h200",      "h200x8",    "h20x8",     "h800x8", "l40sx8",
        "l4x8",        "mi300xx8",   "rtx3090x8", "rtx4090x8", "rtx5090x8", "t4x4"}) {
    EXPECT_EQ(names.count(name), 1) << name;
  }
}

// A piece of kLab, what to put in its place, and what is then said.
struct WrongProfile {
  const char* from;
  const char* to;
  const char* message;
};

constexpr WrongProfile kWrongProfiles[] = {
    {"nics_per_node: 1", "nic_per_node: 1",
     "lab.yaml:3: nic_per_node: unknown key; did you mean nics_per_node?"},
    {"  compute_units", "  compute_unitz",
     "lab.yaml:9: device.compute_unitz: unknown key; did you mean compute_units?"},
    {"bf16: 312e12", "bf15: 312e12",
     "lab.yaml:10: device.peak_flops_per_s.bf15: unknown key; did you mean bf16?"},
    {"    attention", "    atention",
     "lab.yaml:15: device.efficiency.atention: unknown key; did you mean attention?"},
    {"precision: fp32", "precision: fp64",
     "lab.yaml:19: device.matmuls[0].precision: found fp64; expected fp32, bf16, fp16 or fp8"},
    {"k: 64", "l: 64", "lab.yaml:19: device.matmuls[0].l: unknown key; the nearest are m, n, k"},
    {"matmuls:\n    - {m: 64, n: 64, k: 64, precision: fp32, flops_per_s: 1e12}", "matmuls: 3",
     "lab.yaml:18: device.matmuls: found 3; expected a list"},
    {"    matmul_bf16: 0.7\n", "",
     "lab.yaml:12: device.efficiency.matmul_bf16: missing beside device.peak_flops_per_s.bf16; "
     "give the share of the peak that is reached"},
    {"name: lab\n", "", "lab.yaml:1: name: missing; a cluster profile needs it"},
    {"backend: cuda", "backend: tpu",
     "lab.yaml:6: device.backend: found tpu; expected cpu or cuda"},
    {"fp32: 19.5e12", "fp32: 0",
     "lab.yaml:10: device.peak_flops_per_s.fp32: 0 is not a positive number; measure it, or "
     "take a profile of configs/clusters"},
    {"bf16: 312e12", "bf16: -1",
     "lab.yaml:10: device.peak_flops_per_s.bf16: -1 is not a rate; use 0 or more"},
    {"peak_memory_bytes_per_s: 2e12", "peak_memory_bytes_per_s: .nan",
     "lab.yaml:11: device.peak_memory_bytes_per_s: found .nan; expected a number"},
    {"matmul_fp32: 0.8", "matmul_fp32: 1.2",
     "lab.yaml:13: device.efficiency.matmul_fp32: 1.2 is not a share of a peak; use 0.0001 to "
     "1"},
    {"streaming: 0.9", "streaming: 0",
     "lab.yaml:16: device.efficiency.streaming: 0 is not a share of a peak"},
    {"nics_per_node: 1", "nics_per_node: 1000",
     "lab.yaml:3: nics_per_node: 1000 must be 0 (one per slot) to 64"},
    {"library_bytes: 3e9", "library_bytes: 90e9",
     "lab.yaml:8: device.library_bytes: 90000000000 must be 0 or more and less than "
     "memory_bytes 80000000000"},
    {"flops_per_s: 1e12}", "flops_per_s: 5e13}",
     "lab.yaml:19: device.matmuls[0].flops_per_s: 5e+13 is above device.peak_flops_per_s.fp32 "
     "1.95e+13; correct the one that is wrong"},
    {"{latency_s: 2e-5, bytes_per_s: 2e10}", "{bytes_per_s: 2e10}",
     "lab.yaml:21: inter_node: needs both latency_s and bytes_per_s, or is left out"},
    {"restart_s: 300", "restart_s: -300",
     "lab.yaml:22: failures.restart_s: -300 is not a time; use 0 or more"},
    {"restart_s: 300}", "restart_s: 300}\nprice_per_device_hour: -2",
     "lab.yaml:23: price_per_device_hour: -2 is not a price; use 0 or more"},
    {"restart_s: 300}", "restart_s: 300}\nprice_per_gpu_hour: 2",
     "lab.yaml:23: price_per_gpu_hour: unknown key; did you mean price_per_device_hour?"},
    {"slots_per_node: 4", "slots_per_node: 4\nslots_per_node: 8",
     "lab.yaml:3: slots_per_node: duplicate key; it stands on line 2 already"},
};

TEST(ClusterYaml, NamesFileLineKeyAndWayOut) {
  std::string issues;
  Read(kLab, &issues);
  EXPECT_EQ(issues, "");
  for (const WrongProfile& c : kWrongProfiles) {
    ASSERT_THAT(kLab, HasSubstr(c.from));
    Read(absl::StrReplaceAll(kLab, {{c.from, c.to}}), &issues);
    EXPECT_THAT(issues, HasSubstr(c.message)) << c.to;
  }
}

TEST(ClusterYaml, TellsAnEmptyFileFromAMissingOne) {
  const JobFolder folder;
  const std::string path = folder.path() + "/empty_profile.yaml";
  std::ofstream(path).close();
  const auto read = [](const std::string& name) {
    Issues issues;
    ReadCluster(Value::Scalar(name, {"job.yaml", 0, 1}), {Folder()}, "", &issues);
    return issues.Text();
  };
  EXPECT_THAT(read(path), HasSubstr("; a cluster profile is a map"));
  EXPECT_THAT(read(path + ".not"), HasSubstr("found no readable profile"));
  EXPECT_THAT(read(folder.path() + "/"), HasSubstr("found no readable profile"));
}

TEST(ClusterYaml, TellsAllErrorsAtOnce) {
  std::string issues;
  Read(absl::StrReplaceAll(kLab, {{"attention: 0.5", "attention: 2"},
                                  {"restart_s: 300", "restart_s: -1"},
                                  {"nics_per_node: 1", "nics_per_node: -1"}}),
       &issues);
  EXPECT_THAT(issues, HasSubstr("lab.yaml:3: nics_per_node: "));
  EXPECT_THAT(issues, HasSubstr("lab.yaml:15: device.efficiency.attention: "));
  EXPECT_THAT(issues, HasSubstr("lab.yaml:22: failures.restart_s: "));
}

}  // namespace
}  // namespace weft
