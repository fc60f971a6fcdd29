#include "launcher/machine.h"

#include <gtest/gtest.h>

#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

class Machine : public ::testing::Test {
 protected:
  Machine() {
    for (const char* folder : {"/proc/self", "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/memory/a"}) {
      std::filesystem::create_directories(root_.path() + folder);
    }
    root_.Write("proc/meminfo", "MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:     800 kB\n");
  }
  JobFolder root_;
};

TEST_F(Machine, WithoutLimitsHasWhatTheKernelSaysIsAvailable) {
  root_.Write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 800 * 1024);
}

TEST_F(Machine, IsLimitedByEveryGroupAboveUs) {
  root_.Write("proc/self/cgroup", "0::/a/b\n");
  root_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root_.Write("sys/fs/cgroup/a/b/memory.current", "5\n");
  root_.Write("sys/fs/cgroup/a/memory.max", "1000\n");
  root_.Write("sys/fs/cgroup/a/memory.current", "300\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 700);
}

TEST_F(Machine, KnowsTheOldControlGroupsToo) {
  root_.Write("proc/self/cgroup", "4:cpu:/a\n7:memory:/a\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1200\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 0);
}

TEST_F(Machine, SaysNothingWhereTheKernelSaysNothing) {
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path() + "/nowhere"), std::nullopt);
  EXPECT_GT(AvailableMemoryBytes().value_or(1), 0);
}

}  // namespace
}  // namespace weft
