#include "launcher/hosts/remote_agent.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/machine/log_tail.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kLongestWords = 8192;
constexpr char kAgentsFirstWords[] = " INFO weft agent ";  // of its log

// A pipe that holds all of `text`, so that nobody waits for the starter to read it.
absl::Status FillPipe(const std::string& text, Descriptor* read_end, Descriptor* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  *read_end = Descriptor(ends[0]);
  *write_end = Descriptor(ends[1]);
  const auto size = static_cast<int64_t>(text.size());
  if (size > kLargestHandOver) {
    return absl::InvalidArgumentError(absl::StrCat("what is handed to an agent has ", size,
                                                   " bytes; pass fewer variables by -x"));
  }
  constexpr int64_t kUsualPipe = 65536;
  if (size > kUsualPipe && fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kLargestHandOver)) < 0) {
    return absl::ErrnoToStatus(errno, "cannot make a large pipe; pass fewer variables by -x");
  }
  if (write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(size)) {
    return absl::ErrnoToStatus(errno, "cannot write to a pipe");
  }
  return absl::OkStatus();
}

}  // namespace

RemoteAgent::RemoteAgent(const RemoteAgentOptions& options, ChildProcess starter,
                         Descriptor lifeline, int64_t log_begin)
    : host_(options.host.name),
      program_(options.program),
      log_(options.log),
      log_begin_(log_begin),
      how_(options.starter),
      starter_(std::move(starter)),
      lifeline_(std::move(lifeline)) {}

absl::StatusOr<RemoteAgent> RemoteAgent::Start(const RemoteAgentOptions& options) {
  Descriptor read_end, lifeline;
  RETURN_IF_ERROR(FillPipe(HandOverText(options.hand_over), &read_end, &lifeline));
  std::vector<std::string> command = {options.program,
                                      "agent",
                                      "--coordinator=" + options.coordinator,
                                      "--run-id=" + options.run_id,
                                      "--name=" + options.host.name,
                                      "--bundle-from-stdin",
                                      "--leave-with-stdin"};
  for (std::string& option : SlotOptions(options.host)) command.push_back(std::move(option));
  const int64_t log_begin = EndOfLog(options.log);
  ASSIGN_OR_RETURN(ChildProcess starter,
                   ChildProcess::Start({.argv = options.starter.argv(options.host, command),
                                        .env = {},
                                        .output = options.log,
                                        .stdin_fd = read_end.get()}));
  return RemoteAgent(options, std::move(starter), std::move(lifeline), log_begin);
}

std::string RemoteAgent::Words() const {
  return ReadTailFrom(log_, log_begin_, kLongestWords);
}

bool RemoteAgent::CameUp() const {
  return absl::StrContains(Words(), kAgentsFirstWords);
}

std::optional<absl::Status> RemoteAgent::Ended() {
  const std::optional<int> status = starter_.Ended();
  if (!status) return std::nullopt;
  if (WIFSIGNALED(*status)) {
    return absl::UnavailableError(
        absl::StrCat("host ", host_, ": ", how_.name, " was killed by signal ", WTERMSIG(*status)));
  }
  const int code = WEXITSTATUS(*status);
  return how_.failure(host_, program_, code, Words());
}

}  // namespace weft
