#include "tests/hosts/three_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kHoldMs = 5000;

std::string TextOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string NamespaceOf(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/ns/net"), error).string();
}

absl::Status Shell(const std::string& commands) {
  if (std::system(absl::StrCat("exec 2>&1; ", commands).c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("failed: ", commands));
}

// A pid and its command, words apart by blanks; empty once it is gone or a zombie.
std::string CommandOf(pid_t pid) {
  std::string command = TextOf(absl::StrCat("/proc/", pid, "/cmdline"));
  std::replace(command.begin(), command.end(), '\0', ' ');
  return command;
}

}  // namespace

std::string ThreeHosts::Name(int host) {
  return absl::StrCat("h", host + 1);
}
std::string ThreeHosts::Address(int host) {
  return absl::StrCat("10.78.0.", host + 11);
}

absl::StatusOr<std::unique_ptr<ThreeHosts>> ThreeHosts::Make() {
  if (geteuid() != 0) return absl::UnavailableError("namespaces need root");
  for (const char* program : {"ip", "unshare", "nsenter"}) {
    if (FindInPath(program).empty()) {
      return absl::UnavailableError(absl::StrCat(program, " is not installed"));
    }
  }
  std::unique_ptr<ThreeHosts> bed(new ThreeHosts);
  RETURN_IF_ERROR(bed->Build());
  return bed;
}

// The commands run in namespaces of their own, which last until the sleep ends.
absl::StatusOr<pid_t> ThreeHosts::Hold(const std::string& commands) {
  const std::string ready = absl::StrCat(folder_, "/ready-", holders_.size());
  ASSIGN_OR_RETURN(ChildProcess holder,
                   ChildProcess::Start({.argv = {"unshare", "--net", "--mount", "--uts", "--ipc",
                                                 "--propagation", "private", "sh", "-c",
                                                 absl::StrCat("set -e; ", commands, "; touch ",
                                                              ready, "; exec sleep 3000")},
                                        .env = {},
                                        .output = absl::StrCat(folder_, "/bed.log"),
                                        .death_signal = SIGKILL}));
  const pid_t pid = holder.pid();
  holders_.push_back(std::move(holder));
  for (int waited = 0; waited < kHoldMs && !holders_.back().Ended(); waited += 5) {
    if (std::filesystem::exists(ready)) return pid;
    usleep(5000);
  }
  return absl::UnavailableError(
      absl::StrCat("no namespaces: ", TextOf(absl::StrCat(folder_, "/bed.log"))));
}

absl::Status ThreeHosts::Build() {
  std::string pattern = "/var/tmp/weft-hosts-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no folder in /var/tmp");
  folder_ = pattern;
  std::ofstream names(folder_ + "/hosts");
  names << "127.0.0.1 localhost\n";
  for (int host = 0; host < kHosts; ++host) names << Address(host) << " " << Name(host) << "\n";
  names.close();
  ASSIGN_OR_RETURN(const pid_t bridge, Hold("ip link add br0 type bridge; ip link set br0 up"));
  for (int host = 0; host < kHosts; ++host) {
    const std::string temporary = absl::StrCat(folder_, "/tmp-", Name(host));
    std::filesystem::create_directory(temporary);
    ASSIGN_OR_RETURN(const pid_t holder,
                     Hold(absl::StrCat("hostname ", Name(host), "; mount --bind ", folder_,
                                       "/hosts /etc/hosts; mount --bind ", temporary,
                                       " /tmp; mount -t tmpfs tmpfs /dev/shm; ip link set lo up")));
    RETURN_IF_ERROR(
        Shell(absl::StrCat("nsenter -t ", bridge, " -n sh -ec 'ip link add v", host,
                           " type veth peer name eth0 netns ", holder, "; ip link set v", host,
                           " master br0 up' && ", OnHost(holder), " sh -ec 'ip addr add ",
                           Address(host), "/24 dev eth0; ip link set eth0 up'")));
  }
  return absl::OkStatus();
}

ThreeHosts::~ThreeHosts() {
  holders_.clear();  // the namespaces go with them
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::string ThreeHosts::OnHost(pid_t holder) const {
  return absl::StrCat("nsenter -t ", holder, " -n -m -u -i");
}

absl::StatusOr<ChildProcess> ThreeHosts::Start(int host, ChildOptions options) const {
  const std::vector<std::string> enter = {
      "nsenter", "-t", absl::StrCat(holders_.at(static_cast<size_t>(host) + 1).pid()), "-n", "-m",
      "-u",      "-i"};
  options.argv.insert(options.argv.begin(), enter.begin(), enter.end());
  return ChildProcess::Start(options);
}

void ThreeHosts::SetLink(int host, bool up) const {
  (void)Shell(absl::StrCat("nsenter -t ", holders_.front().pid(), " -n ip link set v", host,
                           up ? " up" : " down"));
}

std::vector<std::string> ThreeHosts::Processes(int host) const {
  const pid_t holder = holders_.at(static_cast<size_t>(host) + 1).pid();
  const std::string own = NamespaceOf(holder);
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t pid = std::atoi(entry->path().filename().c_str());
    if (pid <= 0 || pid == holder || NamespaceOf(pid) != own) continue;
    const std::string command = CommandOf(pid);
    if (!command.empty()) found.push_back(absl::StrCat(pid, " ", command));
  }
  return found;
}

std::vector<pid_t> ThreeHosts::ProcessesOf(int host, const std::string& program) const {
  std::vector<pid_t> found;
  for (const std::string& each : Processes(host)) {
    const size_t blank = each.find(' ');
    const std::string command = each.substr(blank + 1);
    const size_t slash = command.substr(0, command.find(' ')).rfind('/');
    const std::string name = slash == std::string::npos ? command : command.substr(slash + 1);
    if (name.rfind(program + " ", 0) == 0) found.push_back(std::atoi(each.c_str()));
  }
  return found;
}

std::vector<std::string> ThreeHosts::TemporaryFiles(int host) const {
  const pid_t holder = holders_.at(static_cast<size_t>(host) + 1).pid();
  std::vector<std::string> found;
  for (const char* folder : {"/tmp", "/dev/shm"}) {
    std::error_code error;
    const std::string root = absl::StrCat("/proc/", holder, "/root", folder);
    // Files come and go meanwhile, so the steps may fail.
    for (std::filesystem::recursive_directory_iterator entry(root, error), end;
         !error && entry != end; entry.increment(error)) {
      found.push_back(entry->path().string().substr(root.size() - std::string(folder).size()));
    }
  }
  return found;
}

}  // namespace weft
