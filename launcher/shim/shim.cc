#include "launcher/shim/shim.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "launcher/shim/shim_message.h"
#include "process/rank_variables.h"

namespace weft {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kCannotExecute = 127;

int Complain(const std::string& what, int code) {
  std::fprintf(stderr, "weft-shim: %s\n", what.c_str());
  return code;
}

// The process manager's rank is law.
std::optional<int> RankOfThisProcess() {
  for (const char* name : kRankVariables) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    char* end = nullptr;
    const long rank = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || rank < 0) return std::nullopt;
    return static_cast<int>(rank);
  }
  return std::nullopt;
}

// A connection to the agent, if the one who listens is this user; else -1 and errno.
int Dial(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (connected && peer.uid == geteuid()) return fd;
  const int reason = connected ? EACCES : errno;
  close(fd);
  errno = reason;
  return -1;
}

// Sends `message`, with `descriptor` beside it unless it is -1.
void Tell(int agent, const ShimMessage& message, int descriptor) {
  std::string text = ShimText(message);
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (descriptor >= 0) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  // An agent that is gone shows as a hang-up.
  while (sendmsg(agent, &packet, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::string EndOf(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  if (size <= 0) return "";
  const off_t want = std::min<off_t>(size, static_cast<off_t>(kMostLastBytes));
  std::string text(static_cast<size_t>(want), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), size - want);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

[[noreturn]] void BecomeWorker(const std::vector<char*>& argv, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecute);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "weft-shim: %s cannot be executed: %s\n", argv[0], std::strerror(errno));
  _exit(kCannotExecute);
}

void SignalWorker(int pidfd, int signal) {
  syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0);
}

// Waits for the worker's end; passes signals on, and kills it when the agent is gone.
int Watch(pid_t worker, int pidfd, int agent, int signals) {
  pollfd fds[3] = {{pidfd, POLLIN, 0}, {signals, POLLIN, 0}, {agent, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 3, -1) < 0) continue;  // EINTR
    if (fds[0].revents != 0) break;
    signalfd_siginfo info;
    if (fds[1].revents != 0 && read(signals, &info, sizeof(info)) == sizeof(info)) {
      SignalWorker(pidfd, SIGTERM);
    }
    if (fds[2].revents == 0) continue;
    SignalWorker(pidfd, SIGKILL);
    fds[2].fd = -1;
  }
  int status = 0;
  while (waitpid(worker, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

int RunShim(const ShimOptions& options) {
  const std::optional<int> rank = RankOfThisProcess();
  if (!rank) {
    return Complain(
        "no rank: none of WEFT_RANK, PMIX_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID is "
        "set to a number; it is started by mpirun or srun, never by hand",
        kUsage);
  }
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  const int agent = Dial(options.agent);
  if (agent < 0 || signals < 0) {
    return Complain("the agent at " + options.agent + " cannot be reached: " + std::strerror(errno),
                    kFailed);
  }
  std::error_code error;
  std::filesystem::create_directories(options.logs, error);
  const std::string path = options.logs + "/rank-" + std::to_string(*rank) + ".log";
  const int log = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Complain(path + " cannot be written: " + std::strerror(errno), kFailed);
  std::vector<std::string> words = options.argv;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ShimMessage message = {.generation = options.generation, .rank = *rank, .last_out = ""};
  const pid_t self = getpid();
  const pid_t worker = fork();
  if (worker == 0) BecomeWorker(argv, log, self);
  if (worker < 0) return Complain(std::string("cannot fork: ") + std::strerror(errno), kFailed);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, worker, 0));
  if (pidfd < 0) {
    kill(worker, SIGKILL);
    return Complain(std::string("no pidfd of the worker: ") + std::strerror(errno), kFailed);
  }
  message.pid = worker;
  Tell(agent, message, pidfd);
  message.kind = ShimMessage::Kind::kEnded;
  message.wait_status = Watch(worker, pidfd, agent, signals);
  message.last_out = EndOf(log);
  Tell(agent, message, -1);
  const int status = message.wait_status;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace weft
