// Signals sent to this very process, and to children of it.
#include "process/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

namespace weft {
namespace {

// Only ends a test that has failed: what is waited for comes at once, or as late as a busy machine
// gives somebody a core.
constexpr std::chrono::seconds kPatience{60};

// The exit status of `pid`, or -1 after kPatience, when it is killed.
int WaitFor(pid_t pid) {
  for (int i = 0; i < kPatience / std::chrono::milliseconds(10); ++i) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

TEST(SignalWatcher, CallsBackOnItsOwnThreadInsteadOfKilling) {
  std::promise<int> seen;
  std::future<int> signal = seen.get_future();
  const SignalWatcher watcher({SIGUSR2}, [&](int number) { seen.set_value(number); });
  ASSERT_EQ(kill(getpid(), SIGUSR2), 0);
  ASSERT_EQ(signal.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(signal.get(), SIGUSR2);
}

TEST(PrepareChild, GivesAChildItsSignalsBack) {
  const SignalWatcher watcher({SIGTERM}, [](int) {});
  const pid_t child = fork();
  if (child == 0) {
    PrepareChild();
    pause();
    _exit(0);
  }
  kill(child, SIGTERM);
  const int status = WaitFor(child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(DieWithParent, EndsAGrandchildWhenItsParentIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t self = getpid();
    if (fork() == 0) {
      if (!DieWithParent(SIGKILL, self).ok()) _exit(1);
      const char ready = 'r';
      if (write(ends[1], &ready, 1) != 1) _exit(1);
      sleep(30);
      _exit(write(ends[1], "s", 1) == 1 ? 0 : 1);  // nobody has killed it
    }
    pause();
    _exit(0);
  }
  close(ends[1]);
  char ready = 0;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  WaitFor(parent);
  // The grandchild holds the last writing end: end of file, and no word before it, says that it was
  // killed.
  EXPECT_EQ(read(ends[0], &ready, 1), 0);
  close(ends[0]);
}

TEST(DieWithParent, SaysSoIfTheParentIsGoneAlready) {
  const pid_t child = fork();
  if (child == 0) _exit(DieWithParent(SIGKILL, 1 << 22).ok() ? 0 : 7);
  const int status = WaitFor(child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace weft
