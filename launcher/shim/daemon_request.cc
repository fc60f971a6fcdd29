#include "launcher/shim/daemon_request.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "launcher/shim/agent_call.h"
#include "launcher/shim/shim_message.h"

namespace weft {
namespace {

constexpr char kDaemon[] = "orted";

std::string Trimmed(const std::string& word) {
  const size_t begin = word.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return word.substr(begin, word.find_last_not_of(' ') - begin + 1);
}

// Nothing if a quote is not closed, or stands inside the word.
std::optional<std::string> Unquoted(const std::string& quoted) {
  const std::string word = Trimmed(quoted);
  if (word.empty() || word[0] != '"') {
    if (word.find_first_of("\"'\\") != std::string::npos) return std::nullopt;
    return word;
  }
  std::string text;
  for (size_t i = 1; i < word.size(); ++i) {
    if (word[i] == '"') {
      if (i + 1 != word.size()) return std::nullopt;
      return text;
    }
    if (word[i] == '\\' && ++i == word.size()) return std::nullopt;
    text += word[i];
  }
  return std::nullopt;
}

// Until one of the two is gone. Both are there when the wait begins, or it does not begin.
void WaitForEither(int agent, pid_t parent) {
  const int mpirun = static_cast<int>(syscall(SYS_pidfd_open, parent, 0));
  if (mpirun < 0 || getppid() != parent) return;
  pollfd fds[2] = {{agent, POLLIN, 0}, {mpirun, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::optional<std::vector<std::string>> DaemonArguments(const std::vector<std::string>& words) {
  const auto program = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return Trimmed(word) == kDaemon; });
  if (program == words.end()) return std::nullopt;
  auto end = words.end();
  if (program != words.begin()) {
    if (Trimmed(words.front()) != "(" || Trimmed(words.back()) != ")") return std::nullopt;
    --end;
  }
  std::vector<std::string> args;
  for (auto word = program + 1; word < end; ++word) {
    const std::optional<std::string> arg = Unquoted(*word);
    if (!arg) return std::nullopt;
    args.push_back(*arg);
  }
  return args;
}

int RequestDaemon(const DaemonRequest& request) {
  // Notices of a scheduler's are for agents and ranks; mpirun takes the end of this process for its
  // daemon's. It ends with either of those that it waits for.
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
  const pid_t parent = getppid();
  const std::optional<std::vector<std::string>> args = DaemonArguments(request.words);
  if (!args) return ShimFailed("mpirun asks for something else than its orted", kShimUsage);
  ShimMessage message;
  message.kind = ShimMessage::Kind::kDaemonWanted;
  message.generation = request.generation;
  message.pid = getpid();
  message.host = request.host;
  message.args = *args;
  if (ShimText(message).size() > kMostShimBytes) {
    return ShimFailed("mpirun's command for its daemon is longer than " +
                          std::to_string(kMostShimBytes) + " bytes",
                      kShimUsage);
  }
  const int agent = CallAgent(request.agent);
  if (agent < 0 || !TellAgent(agent, message, -1)) {
    return ShimFailed(
        "the agent at " + request.agent + " cannot be reached: " + std::strerror(errno),
        kShimFailed);
  }
  WaitForEither(agent, parent);
  return 0;
}

}  // namespace weft
