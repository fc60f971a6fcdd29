#include "launcher/machine/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "process/folder_entry.h"
#include "process/signals.h"

namespace weft {
namespace {

constexpr int kPollMs = 10;
constexpr char kNowhere[] = "/dev/null";

// NAME=value strings of our environment with `added` on top; for another user, of what that one may
// see of it.
std::vector<std::string> Environment(std::map<std::string, std::string> added,
                                     const ProcessUser* user) {
  if (user != nullptr) added.merge(VariablesOf(*user));
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool is_seen = user == nullptr || MayInherit(name);
    if (is_seen && added.count(name) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string FindInPath(const std::string& name) {
  if (absl::StrContains(name, '/')) return name;
  const char* path = getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path != nullptr ? path : "", ':')) {
    std::string candidate = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  const std::string program = FindInPath(options.argv.at(0));
  if (program.empty() || access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot execute ", options.argv[0], ": not found"));
  }
  const ProcessUser* const user = options.user ? &*options.user : nullptr;
  const int input = open(kNowhere, O_RDWR | O_CLOEXEC);
  OpenedEntry opened{.descriptor = input, .error = errno, .why = std::strerror(errno)};
  if (opened.ok() && options.output != kNowhere) {
    const AsUser as(user);
    opened = OpenEntry(LogEntryOf(options.output), EntryUse::kAppend);
  }
  if (!opened.ok()) {
    if (input >= 0) close(input);
    return absl::UnknownError(absl::StrCat("cannot open ", options.output, ": ", opened.why));
  }
  const int output = opened.descriptor;
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> env = Environment(options.env, user);
  const std::vector<char*> argv_pointers = Pointers(&argv);
  const std::vector<char*> env_pointers = Pointers(&env);
  const PlaceTaker place(options.place);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {  // only async-signal-safe calls from here on
    setpgid(0, 0);
    // The kernel forgets whose death ends it when it becomes another user's.
    if (user != nullptr && !BecomeUser(*user)) _exit(127);
    if (!DieWithParent(options.death_signal, parent).ok()) _exit(127);
    dup2(options.stdin_fd >= 0 ? options.stdin_fd : input, STDIN_FILENO);
    dup2(options.stderr_fd >= 0 ? options.stderr_fd : output, STDERR_FILENO);
    dup2(options.stdout_fd >= 0 ? options.stdout_fd : output, STDOUT_FILENO);
    place.Take();  // where that is refused, anywhere will do
    PrepareChild();
    execve(program.c_str(), argv_pointers.data(), env_pointers.data());
    _exit(127);
  }
  const int reason = errno;
  if (output != input) close(output);
  close(input);
  if (pid < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot fork: ", std::strerror(reason)));
  }
  setpgid(pid, pid);  // whichever of the two runs first
  return ChildProcess(pid);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !Ended()) Stop(0);
}

// Ended, but its number is still its own, and its group's, until it is reaped.
bool ChildProcess::HasEnded() const {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void ChildProcess::Reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = status;
}

std::optional<int> ChildProcess::Ended() {
  if (!status_ && pid_ > 0 && HasEnded()) Reap();
  return status_;
}

void ChildProcess::AskToEnd() const {
  if (!status_ && pid_ > 0) kill(-pid_, SIGTERM);
}

int ChildProcess::Stop(int patience_ms) {
  if (status_) return *status_;
  AskToEnd();
  for (int waited = 0; !HasEnded() && waited < patience_ms; waited += kPollMs) {
    usleep(kPollMs * 1000);
  }
  kill(-pid_, SIGKILL);
  Reap();  // a killed process ends
  return *status_;
}

}  // namespace weft
