// Root becomes another user for good, in a child, or for a while, in a thread.
#include "launcher/machine/process_user.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDaemonUid = 1;  // of any Debian

class ProcessUserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root, who alone becomes another user";
    const auto user = FindProcessUser("daemon", kDaemonUid);
    ASSERT_TRUE(user.ok()) << user.status();
    user_ = *user;
  }
  ProcessUser user_;
};

TEST_F(ProcessUserTest, IsKnownByItsNameAndTheNumberThatWeftdHas) {
  EXPECT_THAT(std::string(FindProcessUser("nobody-of-weft", 4711).status().message()),
              HasSubstr("who is 4711 for weftd and unknown on this host"));
  EXPECT_THAT(std::string(FindProcessUser("daemon", 4711).status().message()),
              HasSubstr("who is 4711 for weftd and 1 on this host"));
  EXPECT_FALSE(FindProcessUser("root", 0).ok());
}

TEST_F(ProcessUserTest, AChildIsItForGood) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_it = BecomeUser(user_) && getuid() == user_.uid && geteuid() == user_.uid &&
                       getgid() == user_.gid && setuid(0) != 0 && kill(getppid(), 0) != 0;
    _exit(is_it ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ProcessUserTest, AThreadIsItForAWhileAndTheOthersAreNot) {
  std::string folder = testing::TempDir() + "/user-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  const std::string secret = folder + "/secret", made = folder + "/made";
  close(open(secret.c_str(), O_WRONLY | O_CREAT, 0600));
  std::promise<void> taken;
  std::thread other([&, when = taken.get_future()]() mutable {
    when.wait();
    EXPECT_EQ(geteuid(), 0u);
  });
  {
    const AsUser as(&user_);
    EXPECT_LT(open(secret.c_str(), O_RDONLY | O_CLOEXEC), 0);
    close(open(made.c_str(), O_WRONLY | O_CREAT, 0600));
    taken.set_value();
    other.join();
  }
  EXPECT_EQ(geteuid(), 0u);
  struct stat found = {};
  ASSERT_EQ(stat(made.c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, user_.uid);
  std::filesystem::remove_all(folder);
}

TEST_F(ProcessUserTest, OwnsTheProcessThatADescriptorIsOf) {
  EXPECT_EQ(OwnerOf(OpenPidfd(getpid())), 0u);
  std::array<int, 2> ready = {-1, -1};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const char byte = BecomeUser(user_) ? 'y' : 'n';
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Descriptor pidfd = OpenPidfd(child);
  EXPECT_EQ(OwnerOf(pidfd), user_.uid);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(OwnerOf(pidfd), std::nullopt);
  EXPECT_EQ(OwnerOf(Descriptor(ready[0])), std::nullopt) << "it is no process";
  close(ready[1]);
}

TEST(MayInherit, IsWhatSaysWhereProgramsAreAndNoSecret) {
  for (const char* name : {"PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "WEFT_RUN"}) {
    EXPECT_TRUE(MayInherit(name)) << name;
  }
  for (const char* name :
       {"AWS_SECRET_ACCESS_KEY", "HOME", "PATHS", "LD_PRELOAD", "SSH_AUTH_SOCK"}) {
    EXPECT_FALSE(MayInherit(name)) << name;
  }
}

}  // namespace
}  // namespace weft
