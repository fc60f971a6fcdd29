// libweft_srun.so: preloaded into each srun that holds the step of an agent. srun answers a TERM
// by SIGKILL for its whole step. Slurm sends TERM to all processes of a job that is cancelled, and
// KILL itself only KillWait later; within that time ranks are to save. So a TERM counts that comes
// from srun's parent, which is weft, and no other one. srun (Slurm 22.05, src/srun/libsrun) takes
// its signals by sigwait(3). Standard library alone.
#include <unistd.h>

#include <cerrno>
#include <csignal>

extern "C" int sigwait(const sigset_t* set, int* signal) {
  siginfo_t info;
  for (;;) {
    const int number = sigwaitinfo(set, &info);
    if (number < 0 && errno == EINTR) continue;
    if (number < 0) return errno;
    if (number == SIGTERM && info.si_pid != getppid()) continue;
    *signal = number;
    return 0;
  }
}
