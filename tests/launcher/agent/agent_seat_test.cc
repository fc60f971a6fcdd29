// A run's agents of one host, one after the other and all at once: real processes, real locks.
#include "launcher/agent/agent_seat.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "launcher/machine/leftovers.h"

namespace weft {
namespace {

constexpr int kShort = 100;
constexpr int kLong = 20000;  // milliseconds

class AgentSeatTest : public ::testing::Test {
 protected:
  ~AgentSeatTest() override { RemoveTemporaryFolders(run_, kHost); }

  static constexpr char kHost[] = "h1";
  const std::string run_ = absl::StrCat("seat-", getpid());
  const std::string folder_ = SeatFolder(run_, kHost);

  // A process that has begun once it has written a byte to `begun`.
  struct Other {
    pid_t pid = -1;
    int begun = -1;
    void AwaitBegin() const {
      char byte = 0;
      EXPECT_EQ(read(begun, &byte, 1), 1);
    }
    int Wait() const {
      int status = 0;
      EXPECT_EQ(waitpid(pid, &status, 0), pid);
      close(begun);
      return status;
    }
  };
  static Other Fork(const std::function<void(int begun)>& body) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      body(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    return {pid, ends[0]};
  }
  // An agent that has a socket, and leaves after `leaves_after_ms`.
  Other Agent(int leaves_after_ms) const {
    return Fork([&](int begun) {
      const auto seat = AgentSeat::Take(run_, kHost, kLong);
      if (!seat.ok()) _exit(1);
      std::ofstream(seat->folder() + "/ranks.sock") << "old";
      if (write(begun, "x", 1) != 1) _exit(1);
      usleep(static_cast<useconds_t>(leaves_after_ms) * 1000);
    });
  }
};

TEST_F(AgentSeatTest, IsAFolderOfThisUserAloneAndLeavesNothing) {
  {
    const auto seat = AgentSeat::Take(run_, kHost, kShort);
    ASSERT_TRUE(seat.ok()) << seat.status();
    struct stat status = {};
    ASSERT_EQ(stat(seat->folder().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U);
    std::filesystem::create_directories(TemporaryFolders(run_, kHost).back() + "/g1/session");
  }
  for (const std::string& folder : TemporaryFolders(run_, kHost)) {
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  }
}

TEST_F(AgentSeatTest, IsWaitedForWhileItsHolderLeavesAndThenLosesNothing) {
  const Other before = Agent(300);
  before.AwaitBegin();
  const auto seat = AgentSeat::Take(run_, kHost, kLong);
  ASSERT_TRUE(seat.ok()) << seat.status();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/ranks.sock")) << "what is there is new";
  std::ofstream(folder_ + "/ranks.sock") << "new";
  EXPECT_EQ(before.Wait(), 0) << "it left by itself";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/ranks.sock"));
}

TEST_F(AgentSeatTest, IsTakenFromOneWhoDoesNotLeave) {
  const Other before = Agent(kLong);
  before.AwaitBegin();
  kill(before.pid, SIGSTOP);  // it cannot even be asked
  const auto seat = AgentSeat::Take(run_, kHost, kShort);
  ASSERT_TRUE(seat.ok()) << seat.status();
  const int status = before.Wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/ranks.sock"));
}

TEST_F(AgentSeatTest, IsFreeOnceItsHolderIsKilled) {
  const Other before = Agent(kLong);
  before.AwaitBegin();
  kill(before.pid, SIGKILL);
  const auto seat = AgentSeat::Take(run_, kHost, kLong);
  EXPECT_TRUE(seat.ok()) << seat.status();
  before.Wait();
}

TEST_F(AgentSeatTest, IsNoLeftoverWhileItIsTaken) {
  const Other before = Agent(kLong);
  before.AwaitBegin();
  EXPECT_THAT(TemporaryFoldersLeft(), ::testing::Not(::testing::Contains(folder_)));
  kill(before.pid, SIGKILL);
  before.Wait();
  EXPECT_THAT(TemporaryFoldersLeft(), ::testing::Contains(folder_));
}

TEST_F(AgentSeatTest, IsClearedOfWhatAKilledAgentHasLeftAndOfNothingElse) {
  EXPECT_TRUE(AgentSeat::Clear(run_, kHost)) << "nothing is there";
  EXPECT_FALSE(std::filesystem::exists(folder_));
  const Other before = Agent(kLong);
  before.AwaitBegin();
  EXPECT_FALSE(AgentSeat::Clear(run_, kHost)) << "it sits there";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/ranks.sock"));
  kill(before.pid, SIGKILL);
  before.Wait();
  ASSERT_TRUE(std::filesystem::exists(folder_));
  std::filesystem::create_directories(TemporaryFolders(run_, kHost).back() + "/g1/session");
  EXPECT_TRUE(AgentSeat::Clear(run_, kHost));
  for (const std::string& folder : TemporaryFolders(run_, kHost)) {
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  }
}

TEST_F(AgentSeatTest, IsAnotherOneForEachRunAndEachHost) {
  const Other before = Agent(kLong);
  before.AwaitBegin();
  EXPECT_TRUE(AgentSeat::Take(run_, "h2", kShort).ok());
  EXPECT_TRUE(AgentSeat::Take(run_ + "0", kHost, kShort).ok());
  EXPECT_EQ(waitpid(before.pid, nullptr, WNOHANG), 0) << "it is still there";
  kill(before.pid, SIGKILL);
  before.Wait();
}

TEST_F(AgentSeatTest, IsRefusedInAFolderThatOthersCanRead) {
  std::filesystem::create_directory(folder_);
  chmod(folder_.c_str(), 0755);
  EXPECT_EQ(AgentSeat::Take(run_, kHost, kShort).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Each makes a file that nobody else may have made, and has it until it leaves.
TEST_F(AgentSeatTest, BelongsToOneOfManyAtATime) {
  std::vector<Other> others;
  for (int each = 0; each < 8; ++each) {
    others.push_back(Fork([&](int) {
      for (int round = 0; round < 20; ++round) {
        const auto seat = AgentSeat::Take(run_, kHost, kLong);
        if (!seat.ok()) _exit(1);
        const std::string path = seat->folder() + "/shims.sock";
        const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (file < 0) _exit(2);
        usleep(500);
        struct stat named = {};
        if (stat(path.c_str(), &named) != 0) _exit(3);
        close(file);
      }
    }));
  }
  for (const Other& other : others) EXPECT_EQ(other.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace weft
