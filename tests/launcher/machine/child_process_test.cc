// Real processes: how they are started, stopped and found. Each ends within its test.
#include "launcher/machine/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
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

// For what comes at once, or as late as a busy machine gives somebody a core: it only ends a test
// that has failed.
constexpr int kPatienceMs = 60000;

template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int waited = 0; waited < kPatienceMs && !condition(); waited += 10) usleep(10000);
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
  const int status = child->Stop(kPatienceMs);
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
  EXPECT_EQ(KillProcessesOf(run, ProcessKind::kAny, kPatienceMs), 1);
  EXPECT_THAT(ProcessesOf(run), testing::IsEmpty());
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Contains(temporary));
  RemoveTemporaryFolders(run);
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Not(testing::Contains(temporary)));
  EXPECT_FALSE(other->Ended());
  // It is of no generation, as weftd and an agent are.
  EXPECT_EQ(KillProcessesOf(run + "0", ProcessKind::kOfAGeneration, 100), 0);
  EXPECT_FALSE(other->Ended());
  auto rank = ChildProcess::Start({.argv = {"sleep", "30"},
                                   .env = {{kRunVariable, run + "0"}, {kGenerationVariable, "4"}},
                                   .output = folder.path() + "/out"});
  ASSERT_TRUE(rank.ok());
  ASSERT_TRUE(Eventually([&] { return ProcessesOf(run + "0").size() == 2; }));
  EXPECT_EQ(KillProcessesOf(run + "0", ProcessKind::kOfAGeneration, kPatienceMs), 1);
  EXPECT_TRUE(Eventually([&] { return rank->Ended().has_value(); }));
  EXPECT_FALSE(other->Ended());
}

// Two agents of a run may share a machine, and one of them may be started again.
TEST(Leftovers, OfAnotherHostAreLeftAlone) {
  const JobFolder folder;
  const std::string run = UniqueRun("hosts");
  std::vector<ChildProcess> ranks;
  for (const char* host : {"h1", "h10"}) {
    auto rank = ChildProcess::Start(
        {.argv = {"sleep", "30"},
         .env = {{kRunVariable, run}, {kGenerationVariable, "1"}, {kHostVariable, host}},
         .output = folder.path() + "/out"});
    ASSERT_TRUE(rank.ok());
    ranks.push_back(*std::move(rank));
    std::filesystem::create_directories(TemporaryFolder(run, 1, host));
  }
  ASSERT_TRUE(Eventually([&] { return ProcessesOf(run).size() == 2; }));
  EXPECT_THAT(ProcessesOf(run, ProcessKind::kAny, "h1"), testing::ElementsAre(ranks[0].pid()));
  EXPECT_EQ(KillProcessesOf(run, ProcessKind::kOfAGeneration, kPatienceMs, "h1"), 1);
  RemoveTemporaryFolders(run, "h1");
  EXPECT_THAT(ProcessesOf(run), testing::ElementsAre(ranks[1].pid()));
  EXPECT_FALSE(std::filesystem::exists(TemporaryFolder(run, 1, "h1")));
  const std::string left = TemporaryFolder(run, 1, "h10");
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Not(testing::Contains(left))) << "it is in use";
  KillProcessesOf(run, ProcessKind::kAny, kPatienceMs);
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Contains(left));
  RemoveTemporaryFolders(run, "h10");
  EXPECT_FALSE(std::filesystem::exists(left));
}

// Names under /tmp and /dev/shm are anybody's to take.
TEST(Leftovers, AFolderThatIsNotOursAloneIsRefused) {
  const JobFolder folder;
  const std::string path = folder.path() + "/private";
  ASSERT_TRUE(MakePrivateFolder(path).ok());
  EXPECT_TRUE(MakePrivateFolder(path).ok()) << "it is ours";
  std::filesystem::permissions(path, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  const absl::Status open = MakePrivateFolder(path);
  EXPECT_TRUE(absl::IsFailedPrecondition(open));
  EXPECT_THAT(open.message(), testing::HasSubstr("is not a folder of this user alone"));
  std::filesystem::create_directory_symlink(folder.path(), path + "-link");
  EXPECT_FALSE(MakePrivateFolder(path + "-link").ok()) << "a link may lead anywhere";
}

TEST(Leftovers, ANameThatAnotherUserHasTakenIsSteppedAround) {
  if (geteuid() != 0) GTEST_SKIP() << "not root, who alone may make a folder another user's";
  const std::string run = "00000000" + std::to_string(getpid());
  const std::vector<std::string> taken = {SeatFolder(run), StandingFolder(run)};
  for (const std::string& each : taken) {
    ASSERT_EQ(mkdir(each.c_str(), 0777), 0);
    ASSERT_EQ(chown(each.c_str(), 12345, 12345), 0);
  }
  const std::vector<std::string> own = {SeatFolder(run), StandingFolder(run)};
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_NE(own[i], taken[i]);
    EXPECT_EQ(MakePrivateFolder(own[i]), absl::OkStatus());
    rmdir(taken[i].c_str());
  }
  EXPECT_EQ(own, (std::vector<std::string>{SeatFolder(run), StandingFolder(run)}))
      << "it is found where it is, whatever became of the other one";
  EXPECT_THAT(TemporaryFoldersLeft(), testing::Contains(own[0]));
  RemoveTemporaryFolders(run);
  rmdir(own[1].c_str());
  EXPECT_EQ(SeatFolder(run), taken[0]);
}

// The last one to leave a run's folder removes it, often just when the next one comes.
TEST(Leftovers, AFolderThatVanishesMeanwhileIsMadeAnew) {
  const JobFolder folder;
  const std::string path = folder.path() + "/private";
  const pid_t other = fork();
  if (other == 0) {
    alarm(60);
    for (;;) {
      mkdir(path.c_str(), 0700);
      rmdir(path.c_str());
    }
  }
  absl::Status made;
  for (int each = 0; each < 3000 && made.ok(); ++each) {
    made = MakePrivateFolder(path);
    rmdir(path.c_str());
  }
  EXPECT_TRUE(made.ok()) << made;
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

// A group's number is its own only until its leader is reaped.
TEST(ChildProcess, TakesItsGroupWithIt) {
  const JobFolder folder;
  auto child = ChildProcess::Start({.argv = {"sh", "-c", "sleep 30 & echo $!; exec sleep 30"},
                                    .env = {},
                                    .output = folder.path() + "/out"});
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(Eventually([&] { return !ReadAll(folder.path() + "/out").empty(); }));
  const pid_t grandchild = std::stoi(ReadAll(folder.path() + "/out"));
  child->Stop(kPatienceMs);
  EXPECT_TRUE(Eventually([&] { return kill(grandchild, 0) != 0; }));
}

TEST(Leftovers, TemporaryFoldersGoWithTheRun) {
  const std::string run = UniqueRun("folder");
  const std::string folder = TemporaryFolder(run, 4);
  EXPECT_LT(folder.size(), 60);
  std::filesystem::create_directories(folder + "/deep");
  RemoveTemporaryFolders(run);
  EXPECT_FALSE(std::filesystem::exists(folder));
  const std::string long_name(300, 'x');  // a socket's address takes 107 bytes
  EXPECT_LT(TemporaryFolder(run, 4, long_name).size(), 90);
  EXPECT_EQ(TemporaryFolder(run, 4, "a/b").find("a/b"), std::string::npos);
  EXPECT_EQ(TemporaryFolder(run, 1 << 30), "/tmp/weft-" + run + "-tmp");  // no room in memory
}

}  // namespace
}  // namespace weft
