#include "launcher/shim/shim.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "launcher/shim/agent_call.h"
#include "launcher/shim/shim_message.h"
#include "process/folder_entry.h"
#include "process/older_file.h"
#include "process/rank_place.h"
#include "process/rank_variables.h"

namespace weft {
namespace {

constexpr int kCannotExecute = 127;

// The first of the variables that is set, as a number that is not negative.
template <typename Names>
std::optional<int> FirstNumber(const Names& names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    char* end = nullptr;
    const long rank = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || rank < 0) return std::nullopt;
    return static_cast<int>(rank);
  }
  return std::nullopt;
}

// Where the agent wants this rank; slot -1: it has said nothing.
RankPlace PlaceOfThisProcess() {
  const char* text = std::getenv(kPlacesVariable);
  const auto places = ParsePlaces(text == nullptr ? "" : text);
  const std::optional<int> local = FirstNumber(kLocalRankVariables);
  if (!places || !local || static_cast<size_t>(*local) >= places->size()) return {.slot = -1};
  return (*places)[static_cast<size_t>(*local)];
}

// Returns what the worker alone finds in its environment, "NAME=VALUE"; nullopt: the file that was
// named cannot be read.
std::optional<std::vector<std::string>> WorkersOwnVariables() {
  std::vector<std::string> variables;
  const char* const path = std::getenv(kRankEnvironmentVariable);
  if (path == nullptr) return variables;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  for (std::string each; std::getline(file, each, '\0');) variables.push_back(each);
  return variables;
}

void TakeMpiSettingsOfThisHost() {
  for (const HostsMpiSetting& setting : {kSharedMemoryFolder, kSingleCopy}) {
    const char* const value = std::getenv(setting.ours);
    if (value != nullptr) setenv(setting.open_mpi, value, 1);
  }
}

[[noreturn]] void BecomeWorker(const std::vector<char*>& argv, std::vector<std::string> variables,
                               int log, pid_t parent, const PlaceTaker& place) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecute);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (const int refused = place.Take(); refused != 0) {
    dprintf(STDERR_FILENO, "weft-shim: not bound: %s\n", std::strerror(refused));
  }
  for (std::string& each : variables) putenv(each.data());
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "weft-shim: %s cannot be executed: %s\n", argv[0], std::strerror(errno));
  _exit(kCannotExecute);
}

void SignalWorker(int pidfd, int signal) {
  syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0);
}

// Returns whether the shim's parent, mpirun or its daemon, announces that it ends its ranks: it
// sends CONT before TERM, and waits in between (Open MPI 4, odls_base_sigkill_timeout).
bool IsAnnouncement(const signalfd_siginfo& info) {
  return info.ssi_signo == SIGCONT && info.ssi_pid == static_cast<uint32_t>(getppid());
}

// Waits for the worker's end; passes signals on, tells what they announce, and kills the worker
// when the agent is gone.
int Watch(ShimMessage message, int pidfd, int agent, int signals) {
  pollfd fds[3] = {{pidfd, POLLIN, 0}, {signals, POLLIN, 0}, {agent, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 3, -1) < 0) continue;  // EINTR
    if (fds[0].revents != 0) break;
    signalfd_siginfo info;
    if (fds[1].revents != 0 && read(signals, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCONT) SignalWorker(pidfd, SIGTERM);
      if (IsAnnouncement(info) && message.kind != ShimMessage::Kind::kDoomed) {
        message.kind = ShimMessage::Kind::kDoomed;
        TellAgent(agent, message, -1);
      }
    }
    if (fds[2].revents == 0) continue;
    SignalWorker(pidfd, SIGKILL);
    fds[2].fd = -1;
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(message.pid), &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

int RunShim(const ShimOptions& options) {
  const std::optional<int> rank = FirstNumber(kRankVariables);  // the process manager's is law
  if (!rank) {
    return ShimFailed(
        "no rank: none of WEFT_RANK, PMIX_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID is "
        "set to a number; it is started by mpirun or srun, never by hand",
        kShimUsage);
  }
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCONT}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  const int agent = CallAgent(options.agent);
  if (agent < 0 || signals < 0) {
    return ShimFailed(
        "the agent at " + options.agent + " cannot be reached: " + std::strerror(errno),
        kShimFailed);
  }
  const std::string path = options.logs + "/rank-" + std::to_string(*rank) + ".log";
  const int logs = MakeEntryFolder(LogEntryOf(options.logs)).descriptor;
  if (logs >= 0) close(logs);
  const OpenedEntry opened = OpenEntry(LogEntryOf(path), EntryUse::kAppend);
  if (!opened.ok()) return ShimFailed(path + " cannot be written: " + opened.why, kShimFailed);
  std::vector<std::string> words = options.argv;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ShimMessage message;
  message.generation = options.generation;
  message.rank = *rank;
  const RankPlace place = PlaceOfThisProcess();
  if (place.slot >= 0) setenv("WEFT_LOCAL_RANK", std::to_string(place.slot).c_str(), 1);
  TakeMpiSettingsOfThisHost();
  const PlaceTaker taker(place);
  const std::optional<std::vector<std::string>> variables = WorkersOwnVariables();
  if (!variables) {
    return ShimFailed(std::string("the file of ") + kRankEnvironmentVariable + " cannot be read",
                      kShimFailed);
  }
  const pid_t self = getpid();
  const pid_t worker = fork();
  if (worker == 0) BecomeWorker(argv, *variables, opened.descriptor, self, taker);
  if (worker < 0)
    return ShimFailed(std::string("cannot fork: ") + std::strerror(errno), kShimFailed);
  close(opened.descriptor);  // a file that the worker leaves for a new one has to go
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, worker, 0));
  if (pidfd < 0) {
    kill(worker, SIGKILL);
    return ShimFailed(std::string("no pidfd of the worker: ") + std::strerror(errno), kShimFailed);
  }
  message.pid = worker;
  TellAgent(agent, message, pidfd);
  message.wait_status = Watch(message, pidfd, agent, signals);
  message.kind = ShimMessage::Kind::kEnded;
  message.last_out = ReadEnd(LogEntryOf(path), kMostLastBytes);
  TellAgent(agent, message, -1);
  const int status = message.wait_status;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace weft
