// An agent tells of its host from files like these, as two real hosts have them.
#include "launcher/agent/host_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void Write(const std::string& path, const std::string& line) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << line << "\n";
}

TEST(CpusIn, ReadsListsAsTheKernelWritesThem) {
  EXPECT_THAT(CpusIn("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(CpusIn("5"), ElementsAre(5));
  EXPECT_THAT(CpusIn(""), IsEmpty());
  for (const char* wrong : {"x", "1-2-3", "-1", "3-", "0-99999999"}) {
    EXPECT_THAT(CpusIn(wrong), IsEmpty()) << wrong;
  }
}

TEST(DescribeTopology, NamesNodesAndTheGpusBesideThem) {
  const JobFolder folder;
  const std::string nodes = folder.path() + "/sys/devices/system/node";
  Write(nodes + "/node0/cpulist", "0-1,4-5");
  Write(nodes + "/node1/cpulist", "2-3,6-7");
  Write(nodes + "/possible", "0-1");
  const std::string pci = folder.path() + "/sys/bus/pci/devices";
  const struct {
    const char* address;
    const char* vendor;
    const char* type;
    const char* node;
  } devices[] = {{"0000:5d:00.0", "0x10de", "0x030200", "1"},
                 {"0000:3b:00.0", "0x10de", "0x030000", "-1"},
                 {"0000:3b:00.1", "0x10de", "0x040300", "0"},   // its sound
                 {"0000:00:02.0", "0x8086", "0x030000", "0"}};  // another maker's display
  for (const auto& device : devices) {
    const std::string at = pci + "/" + device.address;
    Write(at + "/vendor", device.vendor);
    Write(at + "/class", device.type);
    Write(at + "/device", "0x2330");
    Write(at + "/numa_node", device.node);
  }
  const std::string driver = folder.path() + "/proc/driver/nvidia";
  Write(driver + "/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024");
  Write(driver + "/gpus/0000:3b:00.0/information",
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 100\n");
  proto::Host host;
  DescribeTopologyBelow(folder.path(), &host);
  EXPECT_EQ(host.nvidia_driver(), "550.54.15");
  EXPECT_EQ(host.gpus(0).model(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(host.gpus(1).model(), "") << "no driver has it";
  ASSERT_EQ(host.numa_nodes_size(), 2);
  EXPECT_THAT(host.numa_nodes(1).cpus(), ElementsAre(2, 3, 6, 7));
  ASSERT_EQ(host.gpus_size(), 2);
  EXPECT_EQ(host.gpus(0).pci_address(), "0000:3b:00.0");
  EXPECT_EQ(host.gpus(0).numa_node(), -1);
  EXPECT_EQ(host.gpus(1).numa_node(), 1);
  EXPECT_EQ(host.gpus(1).device(), "0x2330");
}

TEST(DescribeHost, FindsThisOne) {
  const proto::Host host = DescribeHost();
  EXPECT_GE(host.cores(), 1);
  EXPECT_GT(host.memory_bytes(), host.available_bytes());
  EXPECT_FALSE(host.kernel().empty());
}

TEST(SoftwareText, NamesWhatIsKnown) {
  EXPECT_EQ(MpiOf("mpirun (Open MPI) 4.1.4"), "Open MPI 4.1.4");
  EXPECT_EQ(MpiOf("HYDRA build details:"), "");
  EXPECT_EQ(MpiOf(""), "");
  proto::Host host;
  EXPECT_EQ(SoftwareText(host), "");
  host.set_mpi("Open MPI 4.1.4");
  host.add_gpus()->set_model("NVIDIA H100 80GB HBM3");
  host.set_nvidia_driver("550.54.15");
  EXPECT_EQ(SoftwareText(host), "Open MPI 4.1.4, NVIDIA H100 80GB HBM3, driver 550.54.15");
}

TEST(HostText, IsOneLine) {
  proto::Host host;
  host.set_cores(2);
  host.set_memory_bytes(int64_t{3} << 30);
  host.add_numa_nodes();
  host.add_addresses("10.0.0.2");
  EXPECT_EQ(HostText(host), "2 cores, 3.0 GiB, 1 NUMA node, no GPU, 10.0.0.2");
  host.add_gpus();
  host.add_gpus();
  host.clear_addresses();
  EXPECT_EQ(HostText(host), "2 cores, 3.0 GiB, 1 NUMA node, 2 GPUs");
}

}  // namespace
}  // namespace weft
