#include "launcher/run/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/run_launcher.h"
#include "process/run_files.h"
#include "tests/launcher/run/small_run.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunIdentityTest : public SmallRun {
 protected:
  RunIdentityTest() { std::filesystem::create_directories(run()); }

  static RunIdentified Identify(const std::string& folder) {
    const auto run = IdentifyRun(folder, std::nullopt);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *run : RunIdentified{};
  }
  // Gives the run of the fixture an id.
  std::string Begin() {
    const std::string id = NewRunId();
    EXPECT_TRUE(KeepRunId(run(), run() + "/checkpoint", {.id = id}).ok());
    return id;
  }
  std::string other() const { return folder_.path() + "/other"; }
};

TEST(RunIdFile, IsReadAsItWasWritten) {
  const RunIdFile file{"0123456789abcdef", "/runs/with a space", "fedcba9876543210"};
  const auto read = ParseRunId(RunIdText(file));
  ASSERT_TRUE(read);
  EXPECT_EQ(RunIdText(*read), RunIdText(file));
  for (const std::string damaged :
       {"", "weft-run 2\nid 0123456789abcdef\nfolder /a\n", "weft-run 1\nid 0123\nfolder /a\n",
        "weft-run 1\nid 0123456789abcdef\n", "weft-run 1\nfolder /a\n"}) {
    EXPECT_FALSE(ParseRunId(damaged)) << damaged;
  }
}

TEST_F(RunIdentityTest, IsNoneBeforeAnyRun) {
  EXPECT_EQ(Identify(run()).id, "");
  EXPECT_EQ(StatedRunId(run()), "");
}

TEST_F(RunIdentityTest, StaysWithTheFolderThatIsMoved) {
  const std::string id = Begin();
  EXPECT_EQ(Identify(run()).id, id);
  std::filesystem::rename(run(), other());
  const RunIdentified moved = Identify(other());
  EXPECT_EQ(moved.id, id);
  EXPECT_EQ(moved.copied_from, "");
  EXPECT_THAT(moved.notes, IsEmpty());
}

TEST_F(RunIdentityTest, OfACopyIsANewOneWhileTheOriginalStands) {
  const std::string id = Begin();
  std::filesystem::copy(run(), other());
  const RunIdentified copy = Identify(other());
  EXPECT_NE(copy.id, id);
  EXPECT_EQ(copy.copied_from, id);
  EXPECT_THAT(copy.notes, ElementsAre(HasSubstr("a copy of the run in " + run())));
  ASSERT_TRUE(KeepRunId(other(), other() + "/checkpoint", copy).ok());
  EXPECT_EQ(Identify(other()).id, copy.id) << "once";
  EXPECT_EQ(Identify(run()).id, id);
}

// A link leads to the same folder, as a second mount does.
TEST_F(RunIdentityTest, IsOneUnderTwoNames) {
  const std::string id = Begin();
  std::filesystem::create_directory_symlink(run(), other());
  EXPECT_EQ(Identify(other()).id, id);
}

TEST_F(RunIdentityTest, OfACopyThatACrashCutShortIsTheSameAgain) {
  const std::string id = Begin();
  const RunIdFile begun{NewRunId(), run(), id};
  ASSERT_TRUE(WriteWhole(run() + "/run_id", RunIdText(begun)).ok());
  const RunIdentified again = Identify(run());
  EXPECT_EQ(again.id, begun.id);
  EXPECT_EQ(again.copied_from, id);
}

// An older weft has left the id in resolved.yaml alone, and the folder in the job.
TEST_F(RunIdentityTest, OfAnOlderRunIsInItsResolvedJob) {
  const JobSpec job = Job();
  const RunRecord record{.run_id = NewRunId(), .weft_version = "0", .data = Data(job)};
  const std::string text = ResolvedText(job, record);
  ASSERT_TRUE(WriteWhole(run() + "/resolved.yaml", text).ok());
  const PreviousRun previous{job, record};
  EXPECT_EQ(IdentifyRun(run(), previous)->id, record.run_id);
  EXPECT_EQ(StatedRunId(run()), record.run_id);
  std::filesystem::copy(run(), other());
  EXPECT_EQ(IdentifyRun(other(), previous)->copied_from, record.run_id);
}

// A MarkedChild carries the run's id and the mark of a launcher in its environment.
class MarkedChild {
 public:
  MarkedChild(const std::string& run_id, const std::string& mark) {
    auto child = ChildProcess::Start(
        {.argv = {"sleep", "600"}, .env = {{kRunVariable, run_id}, {kLauncherVariable, mark}}});
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) child_.emplace(*std::move(child));
    // Its environment is its own once it is `sleep`.
    for (int tries = 0; tries < 5000 && ProcessesOf(run_id).empty(); ++tries) usleep(1000);
  }
  pid_t pid() const { return child_->pid(); }

 private:
  std::optional<ChildProcess> child_;
};

TEST_F(RunIdentityTest, OfADeadLaunchersRunIsFree) {
  const std::string id = Begin();
  const MarkedChild leftover(id, "4194304.1");
  EXPECT_FALSE(LivingLauncherOf(id));
  EXPECT_EQ(Identify(run()).id, id);
}

// The launcher lives: this folder is held by this test, so that one has another.
TEST_F(RunIdentityTest, OfALivingLaunchersRunIsNotTaken) {
  const std::string id = Begin();
  // `sh` is a launcher whose child carries its mark.
  const std::string script = "mark=$(awk '{print \"'$$'.\" $22}' /proc/$$/stat); " +
                             std::string(kRunVariable) + "=" + id + " " + kLauncherVariable +
                             "=$mark sleep 600 & wait";
  auto launcher = ChildProcess::Start({.argv = {"sh", "-c", script}, .env = {}});
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  for (int tries = 0; tries < 5000 && !LivingLauncherOf(id); ++tries) usleep(1000);
  const auto holder = LivingLauncherOf(id);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->pid, launcher->pid());
  // The sh sees this very folder, and no lock is held on it: a file system without locks.
  const auto same = IdentifyRun(run(), std::nullopt);
  EXPECT_TRUE(absl::IsUnavailable(same.status())) << same.status();
  // A folder with the same id that it does not see under the path that is written down.
  std::filesystem::copy(run(), other());
  std::filesystem::rename(run(), run() + "-moved");
  const RunIdentified copy = Identify(other());
  EXPECT_EQ(copy.copied_from, id);
  EXPECT_EQ(KillProcessesOf(copy.id, ProcessKind::kAny, 100), 0);
  EXPECT_FALSE(launcher->Ended());
}

}  // namespace
}  // namespace weft
