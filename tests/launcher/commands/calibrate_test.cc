// weft calibrate and wrong cluster profiles, through the real executables. Bounds on time are
// those of a person's patience, not of speed: the machine may be busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/job_file/cluster_yaml.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

TEST(Calibrate, WritesAProfileThatPlansHere) {
  JobFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const Ran calibrated = RunWeft(folder, "calibrate --output lab.yaml --slots 4 --seconds 2");
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err << calibrated.out;
  EXPECT_LT(took, std::chrono::seconds(60));
  EXPECT_THAT(calibrated.out, HasSubstr("written: lab.yaml"));

  Issues issues;
  const Value name = Value::Scalar("lab.yaml", {"test", 0, 1});
  const Cluster cluster = ReadCluster(name, {}, folder.path(), &issues);
  ASSERT_EQ(issues.Text(), "");
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.slots_per_node, 4);
  EXPECT_GE(cluster.cores_per_node, 1);
  EXPECT_GE(cluster.device.matmuls.size(), 8);
  EXPECT_GE(cluster.collectives.size(), 8);
  // Orders of magnitude that any machine of this century lies within, busy or not.
  EXPECT_GT(cluster.device.peak_flops_per_s.fp32, 1e8);
  EXPECT_LT(cluster.device.peak_flops_per_s.fp32, 1e13);
  EXPECT_GT(cluster.device.peak_memory_bytes_per_s, 1e8);
  EXPECT_LT(cluster.device.peak_memory_bytes_per_s, 1e13);
  EXPECT_GT(cluster.intra_node.bytes_per_s, 1e6);
  EXPECT_LT(cluster.intra_node.latency_s, 0.1);

  // The quickstart on that machine: a step of 4 small replicas takes neither a microsecond nor a
  // minute, and its terms are all there.
  const Ran planned = RunWeft(folder, "plan " + SourcePath("/configs/jobs/quickstart.yaml") +
                                          " --without-data --json --cluster lab.yaml");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto json = nlohmann::json::parse(planned.out);
  EXPECT_GT(json["prediction"]["step_s"].get<double>(), 1e-4);
  EXPECT_LT(json["prediction"]["step_s"].get<double>(), 60.0);
}

// Nothing is measured before it is clear that it can be used.
TEST(Calibrate, AddsLinksBetweenHostsToAProfileThatIsThere) {
  JobFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
  };
  const std::string points = R"("collectives": [
    {"collective": "all_reduce", "ranks": 2, "nodes": 2, "bytes": 4096, "seconds": 5e-5},
    {"collective": "all_reduce", "ranks": 2, "nodes": 2, "bytes": 1048576, "seconds": 1e-3}]})";
  write("links.json", R"({"backend": "cpu", "ranks": 8, "nodes": 2, )" + points);
  write("gpus.json", R"({"backend": "cuda", "ranks": 8, "nodes": 2, )" + points);
  const std::string profile = "--profile " + SourcePath("/configs/clusters/cpu.yaml ");
  const Ran added = RunWeft(folder, "calibrate --output lab.yaml --links links.json " + profile);
  ASSERT_EQ(added.exit_code, 0) << added.err << added.out;
  EXPECT_THAT(added.out, HasSubstr("between hosts"));
  Issues issues;
  const Cluster cluster =
      ReadCluster(Value::Scalar("lab.yaml", {"test", 0, 1}), {}, folder.path(), &issues);
  ASSERT_EQ(issues.Text(), "");
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.nics_per_node, 1);
  EXPECT_GT(cluster.inter_node.bytes_per_s, 1e9) << "four workers shared it";
  EXPECT_EQ(cluster.collectives.back().nodes, 2);
  const Ran named =
      RunWeft(folder, "calibrate --output named.yaml --links links.json --profile cpu");
  ASSERT_EQ(named.exit_code, 0) << named.err;
  Cluster by_name =
      ReadCluster(Value::Scalar("named.yaml", {"test", 0, 1}), {}, folder.path(), &issues);
  by_name.name = cluster.name;
  EXPECT_EQ(by_name, cluster) << "the name finds the shipped file";
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"--links gpus.json " + profile, "gpus.json: is of backend cuda, the profile of cpu"},
           {"--links missing.json", "--links: missing.json: "},
           {profile, "--profile: links are added to it; say --hosts or --links"},
           {"--set training.steps=1", "--set: is for the run on --hosts"},
           {"--nics 2", "--nics: is for links between hosts"},
           {"--hosts one", "--hosts: one host has no links to others; name two or more"},
           {"--links links.json --hosts a,b", "--links excludes --hosts"},
           {"--links links.json --profile none.yaml", "none.yaml"},
           {"--links links.json --profile h100x9", "h100x8"}}) {
    const Ran refused = RunWeft(folder, "calibrate --output other.yaml " + arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments;
    EXPECT_THAT(refused.err, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/other.yaml"));
  }
}

TEST(Calibrate, OffersACommandThatWorksOnAnyNumberOfSlots) {
  JobFolder folder;
  const Ran calibrated = RunWeft(folder, "calibrate --output two.yaml --slots 2 --seconds 1");
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err << calibrated.out;
  const std::string plan = " plan ";
  const size_t begin = calibrated.out.find(plan, calibrated.out.find("try next:"));
  ASSERT_NE(begin, std::string::npos) << calibrated.out;
  std::string command = calibrated.out.substr(begin + plan.size());
  command.resize(command.find('\n'));
  const Ran planned = RunWeft(folder, "plan " + SourcePath("/") + command);
  EXPECT_EQ(planned.exit_code, 0) << command << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("on 2 slots"));
}

TEST(Calibrate, RefusesWhatItCannotMeasure) {
  JobFolder folder;
  const Ran no_folder = RunWeft(folder, "calibrate --output nowhere/lab.yaml --seconds 1");
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_THAT(no_folder.err, HasSubstr("nowhere/lab.yaml: cannot be written: No such file"));
  const Ran unknown = RunWeft(folder, "calibrate --backend tpu");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("tpu"));
  const Ran too_long = RunWeft(folder, "calibrate --seconds 1000");
  EXPECT_EQ(too_long.exit_code, 2);
}

// A cuda backend may be missing, without a device, or unable to train: each is said by name.
TEST(Calibrate, SaysWhyThereIsNoGpuToMeasure) {
  JobFolder folder;
  const Ran ran = RunWeft(folder, "calibrate --backend cuda --output gpu.yaml --seconds 1");
  if (ran.exit_code == 0) GTEST_SKIP() << "this machine has a GPU and could measure it";
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("cuda"));
}

TEST(WrongClusterFiles, AreRefusedWithFileLineAndKey) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"cores_per_node: 2", "core_per_node: 2",
       "lab.yaml:3: core_per_node: unknown key; did you mean cores_per_node?"},
      {"bytes_per_s: 3e9", "bytes_per_s: 0",
       "lab.yaml:13: intra_node.bytes_per_s: 0 is not a positive number"},
      {"bytes_per_s: 3e9", "bytes_per_s: -1",
       "lab.yaml:13: intra_node.bytes_per_s: -1 is not a positive number"},
      {"attention: 1", "attention: 1.5",
       "lab.yaml:11: device.efficiency.attention: 1.5 is not a share of a peak"},
      {"library_bytes: 1e8", "library_bytes: 3e9",
       "lab.yaml:8: device.library_bytes: 3000000000 must be 0 or more and less than memory_bytes "
       "2000000000"},
      {"fp32: 1e11}",
       "fp32: 1e11}\n  matmuls: [{m: 9, n: 9, k: 9, precision: fp32, "
       "flops_per_s: 9e11}]",
       "lab.yaml:10: device.matmuls[0].flops_per_s: 9e+11 is above "
       "device.peak_flops_per_s.fp32 1e+11"},
      {"name: lab", "name: [lab", "lab.yaml:"},
  };
  const std::string good =
      "name: lab\n"
      "slots_per_node: 4\n"
      "cores_per_node: 2\n"
      "device:\n"
      "  backend: cpu\n"
      "  name: core\n"
      "  memory_bytes: 2e9\n"
      "  library_bytes: 1e8\n"
      "  peak_flops_per_s: {fp32: 1e11}\n"
      "  peak_memory_bytes_per_s: 1e10\n"
      "  efficiency: {matmul_fp32: 1, attention: 1, streaming: 1}\n"
      "  op_overhead_s: 0\n"  // 12
      "intra_node: {latency_s: 0, bytes_per_s: 3e9}\n"
      "inter_node: {latency_s: 0, bytes_per_s: 1e9}\n";
  for (const Case& c : cases) {
    JobFolder folder;
    std::string text = good;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    folder.Write("lab.yaml", text);
    const Ran ran =
        RunWeft(folder, "plan " + SourcePath("/configs/jobs/quickstart.yaml") +
                            " --without-data --set cluster.profile=" + folder.path() + "/lab.yaml");
    EXPECT_EQ(ran.exit_code, 2) << c.to << ran.out;
    EXPECT_THAT(ran.err, HasSubstr(c.message)) << c.to;
  }
}

}  // namespace
}  // namespace weft
