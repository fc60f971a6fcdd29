#include "launcher/machine/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/machine/log_tail.h"
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

TEST_F(Machine, CountsPagesOfFilesThatTheKernelGivesUpAsFree) {
  root_.Write("proc/self/cgroup", "0::/a/b\n");
  root_.Write("sys/fs/cgroup/a/memory.max", "1000\n");
  root_.Write("sys/fs/cgroup/a/memory.current", "900\n");
  root_.Write("sys/fs/cgroup/a/memory.stat", "anon 200\nactive_file 100\ninactive_file 600\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 700);
  root_.Write("proc/self/cgroup", "7:memory:/a\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 0\ntotal_inactive_file 500\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 600);
}

TEST_F(Machine, KnowsTheOldControlGroupsToo) {
  root_.Write("proc/self/cgroup", "4:cpu:/a\n7:memory:/a\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
  root_.Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1200\n");
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path()), 0);
}

TEST_F(Machine, HasAtMostWhatItsGroupsMayHold) {
  root_.Write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(TotalMemoryBytesBelow(root_.path()), 900 * 1024);
  root_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root_.Write("sys/fs/cgroup/a/memory.max", "4096\n");
  EXPECT_EQ(TotalMemoryBytesBelow(root_.path()), 4096);
}

TEST_F(Machine, UsesNoMoreCoresThanItsAffinityAndQuota) {
  root_.Write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(UsableCoresBelow(root_.path(), 8), 8);
  root_.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCoresBelow(root_.path(), 8), 8);
  root_.Write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(UsableCoresBelow(root_.path(), 8), 3);
  EXPECT_EQ(UsableCoresBelow(root_.path(), 2), 2);
  root_.Write("sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(UsableCoresBelow(root_.path(), 8), 1);
  EXPECT_EQ(UsableCoresBelow(root_.path() + "/nowhere", 0), 1);
  EXPECT_GE(UsableCores(), 1);
}

TEST_F(Machine, SaysNothingWhereTheKernelSaysNothing) {
  EXPECT_EQ(AvailableMemoryBytesBelow(root_.path() + "/nowhere"), std::nullopt);
  EXPECT_GT(AvailableMemoryBytes().value_or(1), 0);
}

TEST(MachineId, IsTheSameForAllProcessesThatSeeOneAnother) {
  EXPECT_EQ(MachineId("h1"), MachineId("h1"));
  EXPECT_NE(MachineId("h1"), MachineId("h2")) << "each agent ends its own processes alone";
  EXPECT_GT(MachineId("").size(), 36u) << MachineId("");
}

TEST(LastLines, KeepsTheEnd) {
  EXPECT_EQ(LastLines("a\nb\n\nc\n", 2, 100), "b\nc");
  EXPECT_EQ(LastLines("abcdef", 5, 3), "def");
  EXPECT_EQ(LastLines("", 5, 3), "");
}

TEST(ReadTailFrom, LeavesOutWhatStoodThereBefore) {
  const std::string log = testing::TempDir() + "/read_tail_from.log";
  std::filesystem::remove(log);
  EXPECT_EQ(EndOfLog(log), 0) << "nobody has written yet";
  EXPECT_EQ(ReadTailFrom(log, 0, 100), "");
  std::ofstream(log) << "of the run before\n";
  const int64_t begin = EndOfLog(log);
  EXPECT_EQ(ReadTailFrom(log, begin, 100), "");
  std::ofstream(log, std::ios::app) << "of this one\n";
  EXPECT_EQ(ReadTailFrom(log, begin, 100), "of this one\n");
  EXPECT_EQ(ReadTailFrom(log, begin, 4), "one\n");
  std::ofstream(log) << "cut\n";
  EXPECT_EQ(ReadTailFrom(log, begin, 100), "") << "a log that was cut meanwhile";
  std::filesystem::remove(log);
}

TEST(LastReasons, AreNoLinesOfWhatWentWell) {
  const std::string info = "2026-11-21T12:00:00.123Z INFO attached\n    to h1\n";
  const std::string error = "2026-11-21T12:00:00.124Z ERROR no memory\n    on h1\n";
  EXPECT_EQ(LastReasons(info + error + info, 1, 1000), "    on h1");
  EXPECT_EQ(LastReasons(info + error + info, 5, 1000),
            "2026-11-21T12:00:00.124Z ERROR no memory\n    on h1");
  EXPECT_EQ(LastReasons(info, 5, 1000), "");
  EXPECT_EQ(LastReasons("terminate called\n" + info, 1, 1000), "terminate called");
  EXPECT_EQ(LastReasons("INFO of a library\n", 1, 1000), "INFO of a library");
}

}  // namespace
}  // namespace weft
