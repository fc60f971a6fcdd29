#include "launcher/slurm/partition_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job_file/job_yaml.h"
#include "plan/search/search.h"
#include "tests/launcher/submitted_jobs.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Written in scontrol's form, for the cluster of tests/slurm; h2's Reason is a person's.
constexpr char kNodes[] =
    "NodeName=h1 Arch=x86_64 CoresPerSocket=4 CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.97 "
    "AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:8 NodeAddr=10.78.0.11 "
    "NodeHostName=h1 Version=22.05.8 OS=Linux 6.1.0-18-cloud-amd64 #1 SMP Debian 6.1.76-1 "
    "RealMemory=4000 AllocMem=0 FreeMem=11802 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=low,high,gpu "
    "BootTime=2026-11-26T06:50:10 "
    "CfgTRES=cpu=4,mem=4000M,billing=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0\n"
    "NodeName=h2 CPUTot=16 Gres=gpu:a100:4(S:0-1),shard:8(S:0,1) RealMemory=64000 "
    "MemSpecLimit=4000 State=IDLE+DRAIN Partitions=big Reason=Gres=gpu:1 broken CPUTot=1 [root@x]\n"
    "NodeName=h3 CPUTot=8 Gres=gpu:a100:2,gpu:h100:2 RealMemory=64000 Partitions=mixed\n"
    "NodeName=h4 CPUTot=8 Gres=(null) RealMemory=64000 Partitions=mixed,old\n"
    "NodeName=h5 CPUTot=8 Gres=gpu:h100:4 RealMemory=64000 Partitions=kinds\n"
    "NodeName=h6 CPUTot=8 Gres=gpu:a100:4 RealMemory=64000 Partitions=kinds\n"
    "NodeName=h7 CPUTot=8 Gres=gpu:tesla:4 RealMemory=64000 Partitions=own,both\n"
    "NodeName=h8 CPUTot=8 Gres=gpu:nvidia_h100_80gb_hbm3:4 RealMemory=64000 Partitions=both\n";
constexpr char kPartitions[] =
    "PartitionName=low AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES "
    "QoS=N/A MaxNodes=UNLIMITED Nodes=h1 State=UP TotalCPUs=4 TotalNodes=1\n"
    "PartitionName=high Default=NO Nodes=h1 TotalNodes=1\n"
    "PartitionName=big Default=NO Nodes=h2 TotalNodes=1\n"
    "PartitionName=mixed Default=NO Nodes=h[3-4] TotalNodes=2\n"
    "PartitionName=kinds Default=NO Nodes=h[5-6] TotalNodes=2\n"
    "PartitionName=own Default=NO Nodes=h7 TotalNodes=1\n"
    "PartitionName=both Default=NO Nodes=h[7-8] TotalNodes=2\n"
    "PartitionName=old Default=NO Nodes=h4 TotalNodes=1\n"
    "PartitionName=cloud Default=NO Nodes=c[1-9] TotalNodes=9\n";

TEST(PartitionNodes, AreReadFromScontrol) {
  const std::vector<SlurmNode> nodes = ParseSlurmNodes(kNodes);
  ASSERT_EQ(nodes.size(), 8U);
  EXPECT_EQ(nodes[0], (SlurmNode{"h1", 4, 4000, 8, "", {"low", "high", "gpu"}}));
  EXPECT_EQ(nodes[1], (SlurmNode{"h2", 16, 60000, 4, "a100", {"big"}}));
  EXPECT_EQ(nodes[2], (SlurmNode{"h3", 8, 64000, 4, "", {"mixed"}}));
  EXPECT_EQ(nodes[3], (SlurmNode{"h4", 8, 64000, 0, "", {"mixed", "old"}}));
  const std::vector<SlurmPartition> partitions = ParseSlurmPartitions(kPartitions);
  ASSERT_EQ(partitions.size(), 9U);
  EXPECT_EQ(partitions[0], (SlurmPartition{"low", true, 1}));
  EXPECT_EQ(partitions[3], (SlurmPartition{"mixed", false, 2}));
  EXPECT_TRUE(ParseSlurmNodes("slurm_load_node error: Unable to contact slurm controller").empty());
  EXPECT_TRUE(ParseSlurmPartitions("").empty());
}

absl::StatusOr<std::string> Check(const std::string& model, const std::string& cluster) {
  const std::string yaml = "job: {name: tiny, output_dir: /shared/runs}\n" + model +
                           "cluster: {scheduler: slurm, " + cluster + "}\n";
  const auto file = ReadJobText(yaml, SourcePath("/configs/jobs/job.yaml"), {.check_files = false});
  if (!file.ok()) return file.status();
  const auto plan = FindPlan(file->job, Purpose::kEstimate);
  if (!plan.ok()) return plan.status();
  return CheckNodesOfPartition(file->job, *plan, ParseSlurmPartitions(kPartitions),
                               ParseSlurmNodes(kNodes));
}

TEST(PartitionNodes, AreHeldAgainstThePlan) {
  struct Case {
    const char* name;
    const char* model;
    const char* cluster;
    const char* said;  // empty: nothing
  };
  for (const Case& each : {
           Case{"fits", kTiny, "profile: cpu, slots: 4", ""},
           Case{"CPUs", kTiny, "profile: cpu, slots: 4, threads_per_worker: 2",
                "cluster.slots: 4 workers of 2 threads take 8 CPUs of a node, but nodes of "
                "partition low have 4; write 2 or fewer, or name another partition"},
           Case{"enough nodes of few", kTiny, "profile: cpu, slots: 8, nodes: 2, partition: mixed",
                ""},
           Case{"nodes", kTiny, "profile: cpu, slots: 1, nodes: 3, partition: mixed",
                "cluster.nodes: 3 are needed but partition mixed has 2 (h3, h4); write fewer"},
           Case{"MIN is enough", kTiny, "profile: cpu, slots: 1, nodes: '2:3', partition: mixed",
                ""},
           Case{"GPUs", kLarge, "profile: h100x8, partition: mixed",
                "cluster.gpus_per_node: 8 but nodes of partition mixed have 4 GPUs; write as many"},
           Case{"GPUs of some", kLarge,
                "profile: h100x8, gpus_per_node: 4, nodes: 2, partition: mixed",
                "cluster.nodes: of partition mixed only 1 node has GPUs; write as many"},
           Case{"no GPUs", kLarge, "profile: h100x8, gpus_per_node: 4, partition: old",
                "cluster.partition: old has no nodes with GPUs, but cluster.profile h100x8 is of "
                "GPUs; use big, both, gpu, high, kinds, low, mixed, own, or the profile cpu"},
           Case{"type", kLarge, "profile: h100x8, gpus_per_node: 4, nodes: 1, partition: big",
                "cluster.profile: h100x8 is of H100-SXM-80GB but nodes of partition big have a100; "
                "name the profile of those GPUs"},
           Case{"the very type", kLarge, "profile: a100-80gx8, gpus_per_node: 4, partition: big",
                ""},
           Case{"the type of one", kLarge,
                "profile: h100x8, gpus_per_node: 4, nodes: 2, partition: kinds",
                "cluster.profile: h100x8 is of H100-SXM-80GB but nodes of partition kinds have "
                "a100"},
           Case{"the type of enough", kLarge, "profile: h100x8, gpus_per_node: 4, partition: kinds",
                ""},
           Case{"no type is said", kLarge, "profile: h100x8, partition: low", ""},
           Case{"a cloud", kTiny, "profile: cpu, slots: 64, partition: cloud", ""},
           Case{"unknown", kTiny, "profile: cpu, slots: 64, partition: fast", ""},
           Case{"own words", kTiny,
                "profile: cpu, slots: 64, sbatch_options: --partition=big --exclusive", ""},
           Case{"other words", kTiny,
                "profile: cpu, slots: 64, sbatch_options: --mail-type=END --nice=10",
                "cluster.slots: 64 workers"},
       }) {
    SCOPED_TRACE(each.name);
    const absl::StatusOr<std::string> note = Check(each.model, each.cluster);
    EXPECT_EQ(note.ok(), each.said[0] == '\0') << note.status();
    EXPECT_THAT(std::string(note.status().message()), HasSubstr(each.said));
    EXPECT_EQ(note.value_or(""), "");
  }
}

TEST(PartitionNodes, AreUsedAndSaidWhereTheirTypeSaysNothing) {
  constexpr char kFourOfHundred[] = "profile: h100x8, gpus_per_node: 4, ";
  const auto note_of = [&](const std::string& where) {
    const absl::StatusOr<std::string> note = Check(kLarge, kFourOfHundred + where);
    return note.ok() ? *note : std::string(note.status().message());
  };
  EXPECT_EQ(note_of("partition: own"),
            "nodes of partition own have GPUs of type tesla, which does not say whether they are "
            "H100-SXM-80GB of cluster.profile h100x8");
  EXPECT_EQ(note_of("partition: both"), "") << "one node is enough, and one says it";
  EXPECT_THAT(note_of("nodes: 2, partition: both"), HasSubstr("of type tesla, which does not say"));
}

TEST(PartitionNodes, HaveTheMemoryThatThePlanTakes) {
  const std::string model = kTiny;
  SlurmNode small{"h1", 4, 600, 0, "", {"low"}};
  const std::string yaml = "job: {name: tiny, output_dir: /shared/runs}\n" + model +
                           "cluster: {scheduler: slurm, profile: cpu, slots: 2}\n";
  const auto file = ReadJobText(yaml, SourcePath("/configs/jobs/job.yaml"), {.check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kEstimate);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<SlurmPartition> partitions = {{"low", true, 1}};
  const absl::Status status = CheckNodesOfPartition(file->job, *plan, partitions, {small}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB of a node, but nodes of partition low "
                                                       "have 600 MiB; write fewer"));
  small.memory_mib = 4000;
  EXPECT_TRUE(CheckNodesOfPartition(file->job, *plan, partitions, {small}).ok());
}

}  // namespace
}  // namespace weft
