// Real processes: how they are started, stopped and found. Each ends within its test.
#include "launcher/machine/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/machine/leftovers.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Waits at most 5 s.
template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 500 && !condition(); ++i) usleep(10000);
  return condition();
}

// A name that no other test run has.
std::string UniqueRun(const char* test) {
  return std::string(test) + std::to_string(getpid());
}

TEST(ChildProcess, RunsWithItsEnvironmentAndLeavesItsOutputInAFile) {
  const JobFolder folder;
  auto child = ChildProcess::Start({.argv = {"sh", "-c", "echo $A; echo oops >&2; cat; exit 3"},
                                    .env = {{"A", "x y"}},
                                    .output = folder.path() + "/out"});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(Eventually([&] { return child->Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*child->Ended()), 3);
  EXPECT_EQ(ReadAll(folder.path() + "/out"), "x y\noops\n");
}

TEST(ChildProcess, IsInAGroupOfItsOwn) {
  const JobFolder folder;
  auto child =
      ChildProcess::Start({.argv = {"sleep", "30"}, .env = {}, .output = folder.path() + "/out"});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(getpgid(child->pid()), child->pid());
  EXPECT_NE(getpgid(0), child->pid());
  const int status = child->Stop(1000);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(ChildProcess, IsKilledWhenItDoesNotHearTerm) {
  const JobFolder folder;
  auto child = ChildProcess::Start({.argv = {"sh", "-c", "trap '' TERM; echo ready; sleep 30; :"},
                                    .env = {},
                                    .output = folder.path() + "/out"});
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(Eventually([&] { return ReadAll(folder.path() + "/out") == "ready\n"; }));
  EXPECT_EQ(WTERMSIG(child->Stop(100)), SIGKILL);
}

TEST(ChildProcess, SaysWhatCannotBeExecuted) {
  const auto child =
      ChildProcess::Start({.argv = {"weft-no-such-program"}, .env = {}, .output = "/dev/null"});
  EXPECT_TRUE(absl::IsNotFound(child.status()));
  EXPECT_THAT(child.status().message(), testing::HasSubstr("weft-no-such-program"));
}

TEST(Leftovers, AreFoundByTheRunTheyBelongToAndNoOther) {
  const JobFolder folder;
  const std::string run = UniqueRun("mine");
  auto mine = ChildProcess::Start(
      {.argv = {"sleep", "30"}, .env = {{kRunVariable, run}}, .output = folder.path() + "/out"});
  auto other = ChildProcess::Start({.argv = {"sleep", "30"},
                                    .env = {{kRunVariable, run + "0"}},
                                    .output = folder.path() + "/out"});
  ASSERT_TRUE(mine.ok() && other.ok());
  ASSERT_TRUE(Eventually([&] { return ProcessesOf(run).size() == 1; }));
  EXPECT_THAT(ProcessesOf(run), testing::ElementsAre(mine->pid()));
  const std::string temporary = TemporaryFolder(run, 1);
  ASSERT_TRUE(std::filesystem::create_directory(temporary));
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Not(testing::Contains(temporary)));
  EXPECT_EQ(KillProcessesOf(run, 0, 2000), 1);
  EXPECT_THAT(ProcessesOf(run), testing::IsEmpty());
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Contains(temporary));
  RemoveTemporaryFolders(run);
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Not(testing::Contains(temporary)));
  EXPECT_FALSE(other->Ended());
  EXPECT_EQ(KillProcessesOf(run + "0", other->pid(), 100), 0);  // the excepted one lives
  EXPECT_FALSE(other->Ended());
}

TEST(Leftovers, TemporaryFoldersGoWithTheRun) {
  const std::string run = UniqueRun("folder");
  const std::string folder = TemporaryFolder(run, 4);
  EXPECT_LT(folder.size(), 60);
  std::filesystem::create_directories(folder + "/deep");
  RemoveTemporaryFolders(run);
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(TemporaryFolder(run, 1 << 30), "/tmp/weft-" + run + "-tmp");  // no room in memory
}

}  // namespace
}  // namespace weft
