// The report of a host has what NVML says of its GPUs: a library of ours stands in its place. What
// it does not say is not made up.
#include "launcher/agent/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace weft {
namespace {

using testing::StartsWith;

constexpr int64_t kMiB = int64_t{1} << 20;

proto::Host HostWith(const std::vector<std::string>& addresses) {
  proto::Host host;
  for (const std::string& address : addresses) host.add_gpus()->set_pci_address(address);
  return host;
}

class NvmlTest : public testing::Test {
 protected:
  ~NvmlTest() override { unsetenv("FAKE_NVML"); }
  static proto::Host Described(const char* kind = "") {
    setenv("FAKE_NVML", kind, 1);
    proto::Host host = HostWith({"0000:18:00.0", "0000:3b:00.0", "0000:5e:00.0"});
    DescribeGpuMemory(FAKE_NVML_LIBRARY, &host);
    return host;
  }
};

TEST_F(NvmlTest, TellsMemoryAndWhoHoldsItByAddress) {
  const proto::Host host = Described();
  EXPECT_EQ(host.gpus(0).memory_bytes(), 81559 * kMiB);
  EXPECT_EQ(host.gpus(0).free_bytes(), 81559 * kMiB) << "the driver's own share is no process's";
  EXPECT_EQ(host.gpus(0).users_size(), 0);
  EXPECT_EQ(host.gpus(1).free_bytes(), 61559 * kMiB);
  ASSERT_EQ(host.gpus(1).users_size(), 20);
  EXPECT_EQ(host.gpus(1).users(0).pid(), getpid());
  EXPECT_EQ(host.gpus(1).users(0).bytes(), 18000 * kMiB);
  EXPECT_THAT("launcher_agent_test", StartsWith(host.gpus(1).users(0).name()));
  EXPECT_EQ(host.gpus(1).users(1).bytes(), 0) << "not known";
  EXPECT_EQ(host.gpus(1).users(1).name(), "");
  EXPECT_EQ(host.gpus(2).memory_bytes(), 0) << "a device that it does not know";
}

TEST_F(NvmlTest, TellsItOfAnOldDriverAsWell) {
  EXPECT_EQ(Described("old").gpus(1).free_bytes(), (81559 - 551 - 20000) * kMiB);
}

TEST_F(NvmlTest, SaysNothingWhereThereIsNoLibraryOrNoDriver) {
  EXPECT_EQ(Described("broken").gpus(0).memory_bytes(), 0);
  proto::Host host = HostWith({"0000:18:00.0"});
  DescribeGpuMemory("/no/such/libnvidia-ml.so.1", &host);
  EXPECT_EQ(host.gpus(0).memory_bytes(), 0);
  EXPECT_EQ(PoorestGpu(host, {}), nullptr);
}

TEST_F(NvmlTest, NamesTheGpuWithTheLeastOfThoseThatAreUsed) {
  proto::Host host = Described();
  EXPECT_EQ(PoorestGpu(host, {}), &host.gpus(1));
  EXPECT_EQ(PoorestGpu(host, {0, 2}), &host.gpus(0));
  EXPECT_EQ(PoorestGpu(host, {2}), nullptr) << "that of none is known";
  proto::Gpu& gpu = *host.mutable_gpus(1);
  gpu.mutable_users()->DeleteSubrange(2, 18);
  gpu.mutable_users(0)->set_pid(4711);
  gpu.mutable_users(0)->set_name("python3");
  gpu.mutable_users(1)->set_pid(12);
  EXPECT_EQ(GpuMemoryText(gpu),
            "GPU 0000:3b:00.0 has 60.1 GiB of 79.6 GiB free; process 4711 (python3) holds 17.6 "
            "GiB, process 12 holds some");
}

}  // namespace
}  // namespace weft
