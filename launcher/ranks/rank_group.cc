#include "launcher/ranks/rank_group.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft {
namespace {

constexpr int kCannotExecute = 127;
constexpr useconds_t kPollUs = 10'000;

[[noreturn]] void BecomeRank(int rank, int world_size, std::vector<std::string> argv,
                             pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecute);  // it died before the line above
  const std::string own = std::to_string(rank);
  setenv("WEFT_RANK", own.c_str(), 1);
  setenv("WEFT_LOCAL_RANK", own.c_str(), 1);
  setenv("WEFT_WORLD_SIZE", std::to_string(world_size).c_str(), 1);
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  std::printf("weft-ranks: %s cannot be executed: %s\n", pointers[0], std::strerror(errno));
  std::fflush(stdout);
  _exit(kCannotExecute);
}

void KillAll(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    if (pid > 0) kill(pid, SIGKILL);
  }
}

// Says which rank failed; the group's exit code.
int Failed(int rank, int status) {
  const bool killed = WIFSIGNALED(status);
  const int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
  std::printf("weft-ranks: rank %d %s %d\n", rank, killed ? "signal" : "exit", number);
  std::fflush(stdout);
  return killed ? 128 + number : number;
}

}  // namespace

int RunRankGroup(int world_size, const std::vector<std::string>& argv,
                 const volatile std::sig_atomic_t* stop) {
  const pid_t self = getpid();
  std::vector<pid_t> pids;  // by rank; 0: has ended
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) BecomeRank(rank, world_size, argv, self);
    if (pid < 0) {
      std::printf("weft-ranks: fork failed: %s\n", std::strerror(errno));
      KillAll(pids);
      return 1;
    }
    pids.push_back(pid);
  }
  int code = 0;
  bool stopped = false;
  for (int left = world_size; left > 0;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      if (*stop != 0 && !stopped) KillAll(pids);
      stopped = stopped || *stop != 0;
      usleep(kPollUs);
      continue;
    }
    const auto found = std::find(pids.begin(), pids.end(), pid);
    if (found == pids.end()) continue;
    *found = 0;
    --left;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (!failed || code != 0 || stopped) continue;
    code = Failed(static_cast<int>(found - pids.begin()), status);
    KillAll(pids);
  }
  return stopped && code == 0 ? 128 + SIGTERM : code;
}

}  // namespace weft
