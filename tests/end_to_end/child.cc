#include "tests/end_to_end/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>

namespace weft {
namespace {

int OpenPidfd(int pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

void SendByPidfd(int pidfd, int number) {
  syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0);
}

// The caller has to be between fork and exec.
void BecomeFile(const char* path, int stream) {
  const int file = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
  if (file < 0 || dup2(file, stream) < 0) _exit(127);
}

std::string CommandOf(const std::filesystem::path& proc) {
  std::string command = ReadText(proc / "cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  return command;
}

bool IsZombie(const std::filesystem::path& proc) {
  const std::string stat = ReadText(proc / "stat");
  const size_t after_name = stat.rfind(')');
  return after_name == std::string::npos || stat.compare(after_name, 3, ") Z") == 0 ||
         stat.compare(after_name, 3, ") X") == 0;
}

}  // namespace

Child::Child(std::vector<std::string> arguments, const std::map<std::string, std::string>& added,
             std::string stdout_path, std::string stderr_path)
    : stdout_path_(std::move(stdout_path)), stderr_path_(std::move(stderr_path)) {
  // Never the state folder of whoever runs the tests.
  std::map<std::string, std::string> environment = added;
  environment.emplace("XDG_STATE_HOME",
                      std::filesystem::path(stdout_path_).parent_path() / "state");
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    if (environment.count(text.substr(0, text.find('='))) == 0) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (pid_ == 0) {
    setpgid(0, 0);                     // a Ctrl-C at the test is not one at the child
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // but a killed test leaves nothing behind
    BecomeFile("/dev/null", 0);
    BecomeFile(stdout_path_.c_str(), 1);
    BecomeFile(stderr_path_.c_str(), 2);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  pidfd_ = OpenPidfd(pid_);
}

Child::~Child() {
  if (!Wait(0)) {
    SendByPidfd(pidfd_, SIGKILL);
    Wait(10);
  }
  close(pidfd_);
}

std::optional<Ended> Child::Wait(double timeout_s) {
  if (ended_) return ended_;
  pollfd poll_for{pidfd_, POLLIN, 0};
  if (poll(&poll_for, 1, static_cast<int>(timeout_s * 1000)) != 1) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  ended_ = WIFSIGNALED(status) ? Ended{0, WTERMSIG(status)} : Ended{WEXITSTATUS(status), 0};
  return ended_;
}

void Child::Signal(int number) {
  SendByPidfd(pidfd_, number);
}

std::string Child::Stdout() const {
  return ReadText(stdout_path_);
}
std::string Child::Stderr() const {
  return ReadText(stderr_path_);
}

std::vector<Found> ProcessesWith(const std::string& name, const std::string& value) {
  const std::string wanted = name + "=" + value;
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid() || IsZombie(entry.path())) continue;
    std::string environment = '\0' + ReadText(entry.path() / "environ") + '\0';
    if (environment.find('\0' + wanted + '\0') == std::string::npos) continue;
    found.push_back({pid, CommandOf(entry.path())});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.pid < b.pid; });
  return found;
}

std::string VariableOf(int pid, const std::string& name) {
  const std::string environment = '\0' + ReadText("/proc/" + std::to_string(pid) + "/environ");
  const std::string wanted = '\0' + name + "=";
  const size_t at = environment.find(wanted);
  if (at == std::string::npos) return "";
  return environment.c_str() + at + wanted.size();
}

bool KillFound(const Found& found, int number) {
  const int pidfd = OpenPidfd(found.pid);
  if (pidfd < 0) return false;
  const bool same = CommandOf("/proc/" + std::to_string(found.pid)) == found.command;
  if (same) SendByPidfd(pidfd, number);
  close(pidfd);
  return same;
}

std::string ReadText(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

namespace {

// The whole text has to be a number: a word that is ignored would run something else than was
// asked.
int NumberOf(const char* name, const std::string& text) {
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || number < 0 || number > std::numeric_limits<int>::max())
    throw std::invalid_argument(std::string(name) + "=" + text + " is no number from 0 on");
  return static_cast<int>(number);
}

}  // namespace

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* const text = getenv(name);
  return text == nullptr ? otherwise : NumberOf(name, text);
}

unsigned SeedFromEnvironment(const char* name, unsigned fixed) {
  const char* const text = getenv(name);
  unsigned seed = fixed;
  if (text != nullptr && std::string(text) == "random") {
    seed = std::random_device()() & 0xffff;
  } else if (text != nullptr) {
    seed = static_cast<unsigned>(NumberOf(name, text));
  }
  std::printf("%s=%u\n", name, seed);
  std::fflush(stdout);
  return seed;
}

double NowSeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void SleepSeconds(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  nanosleep(&time, nullptr);
}

}  // namespace weft
