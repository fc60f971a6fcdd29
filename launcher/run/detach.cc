#include "launcher/run/detach.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "process/folder_entry.h"

namespace weft {

absl::StatusOr<pid_t> Detach(const std::string& output) {
  const int out = OpenEntry(LogEntryOf(output), EntryUse::kAppend).descriptor;
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int pipe_fds[2] = {-1, -1};
  if (out < 0 || in < 0 || pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::UnknownError(absl::StrCat("cannot detach to ", output, ": ", strerror(errno)));
  }
  const pid_t first = fork();
  if (first < 0) return absl::UnknownError(absl::StrCat("cannot fork: ", strerror(errno)));
  if (first == 0) {
    setsid();
    const pid_t second = fork();  // not a session leader: it never gets a terminal again
    if (second != 0) {
      const bool told = write(pipe_fds[1], &second, sizeof(second)) == sizeof(second);
      _exit(second > 0 && told ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close(in);
    close(out);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return 0;
  }
  pid_t daemon = -1;
  const bool told = read(pipe_fds[0], &daemon, sizeof(daemon)) == sizeof(daemon);
  waitpid(first, nullptr, 0);
  for (const int fd : {in, out, pipe_fds[0], pipe_fds[1]}) close(fd);
  if (!told || daemon < 0) return absl::UnknownError("cannot detach: fork failed");
  return daemon;
}

}  // namespace weft
