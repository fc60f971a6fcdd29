#include "launcher/commands/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "launcher/commands/commands.h"

namespace weft {
namespace {

// Says whether stdout is a pipe or a socket that nobody reads any more.
bool ReaderIsGone() {
  pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void HoldStandardStreams() {
  // The lowest free number is the one that is given, so in this order; each for what it is not.
  constexpr struct {
    int number;
    int other_use;
  } kStreams[] = {{STDIN_FILENO, O_WRONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_RDONLY}};
  for (const auto& stream : kStreams) {
    if (fcntl(stream.number, F_GETFD) < 0) (void)open("/dev/null", stream.other_use);
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
}

int FlushAnswer(int exit_code) {
  // A stream that has failed before has lost the reason: a flush of nothing succeeds.
  const bool failed_before = !std::cout.good() || std::ferror(stdout) != 0;
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  int error = errno;
  if (flushed && !failed_before) return exit_code;
  // An answer that is printed in parts has failed at an earlier one: a file that nobody may write
  // says so again.
  if (error == 0 && write(STDOUT_FILENO, "", 0) < 0) error = errno;
  if (ReaderIsGone()) return exit_code;
  std::cerr << "weft: the output could not be written";
  if (error != 0) std::cerr << ": " << std::strerror(error);
  std::cerr << "\n";
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

}  // namespace weft
