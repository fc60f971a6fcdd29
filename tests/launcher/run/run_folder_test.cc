#include "launcher/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "process/run_files.h"
#include "process/version.h"
#include "tests/launcher/run/small_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

using RunFolder = SmallRun;

TEST_F(RunFolder, IsHeldByOneRunAtATime) {
  EXPECT_FALSE(IsRunning(run()));
  {
    const auto lock = RunLock::Take(run());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE(lock->WriteHolder(4242).ok());
    EXPECT_TRUE(IsRunning(run()));
    const auto second = RunLock::Take(run());
    EXPECT_TRUE(absl::IsUnavailable(second.status()));
    EXPECT_THAT(second.status().message(), HasSubstr("is in use by another weft (pid 4242)"));
  }
  EXPECT_FALSE(IsRunning(run()));
  EXPECT_TRUE(RunLock::Take(run()).ok());
}

TEST_F(RunFolder, MovesAnOldRunAsideAndDeletesNothing) {
  const JobSpec job = Job();
  ASSERT_TRUE(RunLock::Take(run()).ok());
  EXPECT_EQ(*MoveAside(job, run(), ""), "");  // nothing was run yet
  for (int n = 1; n <= 2; ++n) {
    ASSERT_TRUE(RunLock::Take(run()).ok());
    ASSERT_TRUE(WriteWhole(run() + "/resolved.yaml", "x").ok());
    EXPECT_EQ(*MoveAside(job, run(), ""), run() + ".old-" + std::to_string(n));
    EXPECT_TRUE(std::filesystem::exists(run() + ".old-" + std::to_string(n) + "/resolved.yaml"));
  }
}

TEST_F(RunFolder, HoldsItsSocketHoweverDeepItIs) {
  const std::string deep = "/" + std::string(120, 'd');
  EXPECT_EQ(SocketPath(deep), deep + "/weftd.sock");
}

TEST_F(RunFolder, IsFoundByItsPathOrItsJobFile) {
  folder_.Write("job.yaml", kGoodJob);
  EXPECT_THAT(FindRun(folder_.job()).status().message(), HasSubstr("no run in " + run()));
  ASSERT_TRUE(RunLock::Take(run()).ok());
  EXPECT_EQ(FindRun(folder_.job())->folder, run());
  EXPECT_EQ(FindRun(run() + "/")->folder, run());
}

TEST_F(RunFolder, RefusesAFolderItCannotWrite) {
  folder_.Write("outputs", "a file where a folder should be");
  const auto lock = RunLock::Take(run());
  EXPECT_TRUE(absl::IsInvalidArgument(lock.status()));
  EXPECT_THAT(lock.status().message(), HasSubstr("set job.output_dir to a writable folder"));
}

}  // namespace
}  // namespace weft
