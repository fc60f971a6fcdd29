// The task of deploy/skypilot on three hosts that stand for nodes: each runs its `run` with the
// variables that SkyPilot sets (0.14.1, backends/task_codegen.py). Its keys are SkyPilot's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/hosts/hosts_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string TaskFile() {
  return SourcePath("/deploy/skypilot/weft.yaml");
}

// The keys are those of SkyPilot 0.14.1, sky/utils/schemas.py: get_task_schema and
// _get_single_resources_schema. tests/hosts/validate_skypilot.py has SkyPilot itself look.
TEST(SkyTask, HasKeysOfSkyPilotsAlone) {
  const YAML::Node task = YAML::LoadFile(TaskFile());
  const std::set<std::string> known = {
      "name",        "workdir", "event_callback", "num_nodes",       "resources",
      "file_mounts", "service", "pool",           "setup",           "run",
      "envs",        "secrets", "inputs",         "outputs",         "file_mounts_mapping",
      "volumes",     "config",  "volume_mounts",  "managed_secrets", "api_server_access"};
  const std::set<std::string> known_resources = {
      "cloud",          "region",           "zone",      "infra",
      "cpus",           "memory",           "volumes",   "accelerators",
      "use_spot",       "instance_type",    "disk_size", "disk_tier",
      "ports",          "labels",           "autostop",  "ephemeral_storage",
      "local_disk",     "network_tier",     "image_id",  "priority",
      "any_of",         "accelerator_args", "ordered",   "job_recovery",
      "priority_class", "max_hourly_cost"};
  for (const auto& each : task) EXPECT_EQ(known.count(each.first.as<std::string>()), 1U);
  for (const auto& each : task["resources"]) {
    EXPECT_EQ(known_resources.count(each.first.as<std::string>()), 1U) << each.first;
  }
  EXPECT_EQ(task["resources"]["job_recovery"]["recover_on_exit_codes"][0].as<int>(), 75);
  EXPECT_EQ(task["volumes"][task["envs"]["WEFT_SHARED"].as<std::string>()].as<std::string>(),
            "weft-data");
}

class SkyRun : public HostsRun {
 protected:
  static constexpr int kNodes = 3;

  void SetUp() override {
    HostsRun::SetUp();
    if (bed_ == nullptr) return;
    std::filesystem::create_directories(bed_->shared() + "/weft");
    std::filesystem::create_directory_symlink(BinaryPath("/bin"), bed_->shared() + "/weft/bin");
    script_ = YAML::LoadFile(TaskFile())["run"].as<std::string>();
  }

  void WriteTasksJob() {
    WriteJob(kFixed, absl::StrCat("slots: 2, nodes: 3, network: ", HostBed::kNetwork),
             ShortTimes());
  }

  std::unique_ptr<Child> StartNode(int rank) {
    std::string ips;
    for (int node = 1; node <= kNodes; ++node) {
      absl::StrAppend(&ips, node > 1 ? "\n" : "", HostBed::Address(node));
    }
    return bed_->Start(rank + 1, {"/bin/bash", "-c", script_},
                       {{"HOME", bed_->shared()},
                        {"WEFT_SHARED", bed_->shared()},
                        {"WEFT_PORT", "7070"},
                        {"SKYPILOT_NODE_IPS", ips},
                        {"SKYPILOT_NODE_RANK", std::to_string(rank)},
                        {"SKYPILOT_NUM_NODES", std::to_string(kNodes)},
                        {"SKYPILOT_NUM_GPUS_PER_NODE", "0"},
                        {"SKYPILOT_TASK_ID", kTaskId}});
  }
  std::string Bundles() const { return bed_->shared() + "/.weft-sky/" + kTaskId; }

  void ExpectEnds(Child* node, int code, double within_s) {
    const std::optional<Ended> ended = node->Wait(within_s);
    ASSERT_TRUE(ended.has_value()) << node->Stdout() << node->Stderr() << Words();
    EXPECT_EQ(ended->exit_code, code) << node->Stdout() << node->Stderr() << Words();
  }

  static constexpr char kTaskId[] = "sky-managed-2026-11-26-20-00-00-123456_weft_12-0";
  std::string script_;
};

TEST_F(SkyRun, GivesTheVeryLossesOfOneHost) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  WriteTasksJob();
  std::vector<std::unique_ptr<Child>> nodes(kNodes);
  for (const int rank : {2, 0, 1}) nodes[static_cast<size_t>(rank)] = StartNode(rank);
  ExpectEnds(nodes[0].get(), 0, 180);
  for (const size_t rank : {1, 2}) ExpectEnds(nodes[rank].get(), 0, 120);
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(LastGeneration(), 1) << Words();
  for (const auto& entry : std::filesystem::directory_iterator(Bundles())) {
    EXPECT_NE(entry.path().extension(), ".pem") << "a key is left";
  }
}

// A managed job that ends with 75 is started again under the same name, on other machines or the
// same ones: bundles of the attempt before, which was cut short, are there still.
TEST_F(SkyRun, GoesOnInAnotherAttemptOfTheSameTask) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  WriteTasksJob();
  std::vector<std::unique_ptr<Child>> nodes;
  for (int rank = 0; rank < kNodes; ++rank) nodes.push_back(StartNode(rank));
  ASSERT_TRUE(WaitForStep(13)) << nodes[0]->Stdout() << nodes[0]->Stderr() << Words();
  bed_->Run(1, "cp -r " + Bundles() + " " + Bundles() + ".kept");
  EXPECT_EQ(bed_->Run(1, "kill -TERM $(pgrep -f '^/[^ ]*/weft run')").exit_code, 0);
  ExpectEnds(nodes[0].get(), 75, 120);
  // SkyPilot ends the other nodes' processes.
  for (const int host : {2, 3}) Kill(host, "^/[^ ]*/weft agent");
  nodes.clear();
  bed_->Run(1, "rm -r " + Bundles() + " && mv " + Bundles() + ".kept " + Bundles());
  // Nodes that are early find what was left there.
  for (const int rank : {1, 2}) nodes.push_back(StartNode(rank));
  SleepSeconds(2);
  nodes.push_back(StartNode(0));
  ExpectEnds(nodes[2].get(), 0, 180);
  for (const size_t node : {0, 1}) ExpectEnds(nodes[node].get(), 0, 120);
  EXPECT_EQ(Curve(), alone);
  EXPECT_GT(LastGeneration(), 1) << Words();
}

}  // namespace
}  // namespace weft
