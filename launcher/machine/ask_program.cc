#include "launcher/machine/ask_program.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kMostAnswer = 16 << 20;

// A file in memory takes any amount without a reader.
absl::StatusOr<Descriptor> MemoryFile(const std::string& text) {
  Descriptor file(memfd_create("answer", MFD_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "cannot make a file in memory");
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file.get(), 0, SEEK_SET) != 0) {
    return absl::ErrnoToStatus(errno, "cannot write to memory");
  }
  return file;
}

std::string TextOf(const Descriptor& file) {
  const off_t size = lseek(file.get(), 0, SEEK_END);
  if (size <= 0 || size > kMostAnswer) return "";
  std::string text(static_cast<size_t>(size), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace

absl::StatusOr<ProgramAnswer> AskProgram(const std::vector<std::string>& argv,
                                         const std::string& input, int timeout_ms) {
  const std::string& program = argv.at(0);
  if (FindInPath(program).empty()) {
    return absl::NotFoundError(absl::StrCat(program, " is not in PATH"));
  }
  ASSIGN_OR_RETURN(const Descriptor in, MemoryFile(input));
  ASSIGN_OR_RETURN(const Descriptor out, MemoryFile(""));
  ASSIGN_OR_RETURN(const Descriptor err, MemoryFile(""));
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({.argv = argv,
                                                            .env = {},
                                                            .stdin_fd = in.get(),
                                                            .stdout_fd = out.get(),
                                                            .stderr_fd = err.get()}));
  const Descriptor pidfd = OpenPidfd(child.pid());
  pollfd over{pidfd.get(), POLLIN, 0};
  while (poll(&over, 1, timeout_ms) < 0 && errno == EINTR) {
  }
  const std::optional<int> status = child.Ended();
  if (!status && over.revents != 0) {
    return absl::InternalError(
        absl::StrCat("how ", program, " ended is not known: this process reaps all its children"));
  }
  if (!status) {
    return absl::DeadlineExceededError(
        absl::StrCat(program, " has not answered after ", timeout_ms / 1000, " s"));
  }
  const int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
  return ProgramAnswer{code, TextOf(out), TextOf(err)};
}

std::string LastLine(absl::string_view words) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(words, '\n')) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) last = std::string(text);
  }
  return last;
}

}  // namespace weft
