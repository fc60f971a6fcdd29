#include "tests/hosts/host_bed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/end_to_end/tiny_model.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr double kUpWithinS = 60;
constexpr double kCommandS = 60;

constexpr const char* kPrograms[] = {"/usr/bin/unshare", "/usr/bin/nsenter", "/usr/sbin/sshd",
                                     "/usr/bin/ssh", "/usr/bin/ssh-keygen"};

constexpr char kNotInstalled[] = " is not installed; run deploy/install_packages.sh test";

std::string Ip() {
  return access("/usr/sbin/ip", X_OK) == 0 ? "/usr/sbin/ip" : "/sbin/ip";
}

std::vector<std::string> Enter(int pid, std::vector<std::string> command) {
  std::vector<std::string> whole = {
      "/usr/bin/nsenter", "-t", std::to_string(pid), "-n", "-m", "-u", "-i", "-p", "--"};
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

void Write(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

std::string HostBed::Missing() {
  if (geteuid() != 0) return "only root can make namespaces; be root";
  for (const char* program : kPrograms) {
    if (access(program, X_OK) != 0) return std::string(program) + kNotInstalled;
  }
  if (access(Ip().c_str(), X_OK) != 0) return std::string("iproute2") + kNotInstalled;
  if (system("/usr/bin/unshare -n -m -u -i -p --fork true >/dev/null 2>&1") != 0) {
    return "this machine lets nobody make namespaces; a container needs to be privileged";
  }
  return "";
}

HostBed::HostBed(int hosts) : hosts_(hosts) {
  // Not under /tmp, which is each host's own.
  char folder[] = "/var/tmp/weft-hosts-XXXXXX";
  if (mkdtemp(folder) == nullptr) throw std::runtime_error("no folder under /var/tmp");
  folder_ = folder;
  WriteFiles();
  switch_ = Local({"/usr/bin/unshare", "-n", "--fork", "--kill-child=KILL", "/bin/sh", "-c",
                   Ip() + " link add br0 type bridge && " + Ip() + " link set br0 up && touch " +
                       folder_ + "/switch.ready && exec sleep infinity"});
  const bool up =
      Eventually(kUpWithinS, [&] { return std::filesystem::exists(folder_ + "/switch.ready"); });
  if (!up) throw std::runtime_error("no switch: " + switch_->Stderr());
  switch_pid_ = InnerPid(*switch_);
  for (int host = 1; host <= hosts; ++host) StartHost(host);
  Remember();
}

HostBed::~HostBed() {
  holders_.clear();  // the kernel ends whatever else runs in their namespaces
  switch_.reset();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void HostBed::WriteFiles() {
  for (const char* name : {"/shared", "/bin1", "/out"}) {
    std::filesystem::create_directory(folder_ + name);
  }
  chmod(folder_.c_str(), 0711);
  RunHere({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ + "/key"});
  std::filesystem::copy(folder_ + "/key.pub", folder_ + "/authorized_keys");
  std::string known;
  names_ = "127.0.0.1 localhost\n";
  for (int host = 1; host <= hosts_; ++host) {
    const std::string key = folder_ + "/host_key" + std::to_string(host);
    RunHere({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key});
    names_ += Address(host) + " " + Name(host) + "\n";
    known += Name(host) + "," + Address(host) + " " + ReadText(key + ".pub");
    std::filesystem::create_directory(folder_ + "/tmp" + std::to_string(host));
    chmod((folder_ + "/tmp" + std::to_string(host)).c_str(), 01777);
    Write(folder_ + "/sshd" + std::to_string(host) + ".conf",
          "Port 22\nHostKey " + key + "\nPidFile none\nUsePAM no\nStrictModes no\n" +
              "PasswordAuthentication no\nPermitRootLogin yes\nAuthorizedKeysFile " + folder_ +
              "/authorized_keys\nAcceptEnv WEFT_*\nSetEnv " + kPauseVariable + "=" + kPace + "\n",
          0600);
  }
  Write(folder_ + "/hosts", names_, 0644);
  Write(folder_ + "/known_hosts", known, 0644);
  Write(folder_ + "/ssh_config",
        "IdentityFile " + folder_ + "/key\nIdentitiesOnly yes\nUserKnownHostsFile " + folder_ +
            "/known_hosts\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n",
        0644);
}

void HostBed::StartHost(int host) {
  const std::string number = std::to_string(host);
  const std::string ready = folder_ + "/ready" + number;
  // The network comes from outside, so the host waits for it before its sshd starts.
  const std::string tmp = folder_ + "/tmp" + number;
  const std::string script =
      "hostname " + Name(host) + " && mount --bind " + folder_ + "/hosts /etc/hosts && mount -t " +
      "tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && mkdir -m 0755 /run/sshd" +
      BindClone(tmp) + " && mount --rbind " + tmp + " /tmp && touch " + ready +
      " && while [ ! -e " + ready + ".net ]; do sleep 0.01; done && /usr/sbin/sshd -f " + folder_ +
      "/sshd" + number + ".conf && touch " + ready + ".all && { sleep infinity & wait; }";
  holders_.push_back(
      Local({"/usr/bin/unshare", "-n", "-m", "-u", "-i", "-p", "--fork", "--kill-child=KILL",
             "--mount-proc", "--propagation", "private", "/bin/sh", "-c", script}));
  Child& holder = *holders_.back();
  const auto exists = [](const std::string& path) {
    return [path] { return std::filesystem::exists(path); };
  };
  if (!Eventually(kUpWithinS, exists(ready))) {
    throw std::runtime_error(Name(host) + " does not come up: " + holder.Stderr());
  }
  pids_.push_back(InnerPid(holder));
  const std::string link = "v" + Name(host);
  RunHere({Ip(), "link", "add", link, "netns", std::to_string(switch_pid_), "type", "veth", "peer",
           "name", "eth0", "netns", std::to_string(pids_.back())});
  RunHere({"/usr/bin/nsenter", "-t", std::to_string(switch_pid_), "-n", "--", Ip(), "link", "set",
           link, "master", "br0", "up"});
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"addr", "add", Address(host) + "/24", "dev", "eth0"},
        {"link", "set", "eth0", "up"},
        {"link", "set", "lo", "up"}}) {
    std::vector<std::string> command = {Ip()};
    command.insert(command.end(), words.begin(), words.end());
    RunHere(Enter(pids_.back(), command));
  }
  Write(ready + ".net", "", 0600);
  if (!Eventually(kUpWithinS, exists(ready + ".all"))) {
    throw std::runtime_error(Name(host) + " has no sshd: " + holder.Stderr());
  }
  if (host == 1) {
    std::string line = "#!/bin/sh\nexec";
    for (const std::string& word : Enter(pids_.back(), {"/usr/bin/ssh"})) line += " " + word;
    Write(ssh_of_host1() + "/ssh", line + " \"$@\"\n", 0755);
  }
}

std::string HostBed::BindClone(const std::string& tmp) const {
  std::string words;
  for (const std::string& folder : {SourcePath(), BinaryPath()}) {
    if (folder.rfind("/tmp/", 0) != 0) continue;
    const std::string place = tmp + folder.substr(sizeof("/tmp") - 1);
    words += " && mkdir -p '" + place + "' && mount --bind '" + folder + "' '" + place + "'";
  }
  return words;
}

int HostBed::InnerPid(const Child& holder) const {
  const std::string pid = std::to_string(holder.pid());
  const std::string children = ReadText("/proc/" + pid + "/task/" + pid + "/children");
  return children.empty() ? 0 : std::stoi(children);
}

std::unique_ptr<Child> HostBed::Local(const std::vector<std::string>& command,
                                      const std::map<std::string, std::string>& env) {
  const std::string base = folder_ + "/out/" + std::to_string(++children_);
  return std::make_unique<Child>(command, env, base + ".out", base + ".err");
}

void HostBed::RunHere(const std::vector<std::string>& command) {
  const std::unique_ptr<Child> child = Local(command);
  const std::optional<Ended> ended = child->Wait(kCommandS);
  if (ended && ended->exit_code == 0 && ended->signal == 0) return;
  std::string line;
  for (const std::string& word : command) line += word + " ";
  throw std::runtime_error(line + "failed: " + child->Stderr());
}

std::vector<std::string> HostBed::On(int host, std::vector<std::string> command) const {
  return Enter(pids_.at(static_cast<size_t>(host - 1)), std::move(command));
}

std::unique_ptr<Child> HostBed::Start(int host, const std::vector<std::string>& command,
                                      const std::map<std::string, std::string>& env) {
  std::map<std::string, std::string> environment = env;
  environment.emplace("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");  // not ssh_of_host1
  environment.emplace(kPauseVariable, kPace);
  return Local(On(host, command), environment);
}

HostBed::Answer HostBed::Run(int host, const std::string& command) {
  const std::unique_ptr<Child> child = Start(host, {"/bin/sh", "-c", command});
  const std::optional<Ended> ended = child->Wait(kCommandS);
  return {ended && ended->signal == 0 ? ended->exit_code : -1, child->Stdout(), child->Stderr()};
}

int HostBed::OpenNetwork(int host) const {
  const int pid = pids_.at(static_cast<size_t>(host - 1));
  return open(("/proc/" + std::to_string(pid) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
}

void HostBed::CutLink(int host) {
  cut_.insert(host);
  SetLink(host, "down");
}

void HostBed::RestoreLink(int host) {
  SetLink(host, "up");
  cut_.erase(host);
}

void HostBed::SetLink(int host, const char* state) {
  RunHere({"/usr/bin/nsenter", "-t", std::to_string(switch_pid_), "-n", "--", Ip(), "link", "set",
           "v" + Name(host), state});
}

std::vector<std::string> HostBed::Processes(int host) {
  // Each is a line; what the host consists of, and this question, are left out.
  const Answer answer =
      Run(host,
          "for p in /proc/[0-9]*; do [ ${p#/proc/} = 1 -o ${p#/proc/} = $$ ] && continue; "
          "tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep . ; done");
  std::vector<std::string> lines;
  std::istringstream stream(answer.out);
  for (std::string line; std::getline(stream, line);) {
    const bool of_the_host = line.rfind("sleep infinity", 0) == 0 || line.rfind("sshd: ", 0) == 0 ||
                             line.rfind("tr ", 0) == 0 || line.rfind("grep ", 0) == 0 ||
                             line.rfind("/bin/sh -c for p in", 0) == 0;
    if (!of_the_host) lines.push_back(line);
  }
  return lines;
}

void HostBed::ExpectNothingLeft() {
  for (int host = 1; host <= hosts_; ++host) {
    std::vector<std::string> left;
    Eventually(kLeavesWithinS, [&] { return (left = Processes(host)).empty(); });
    for (const std::string& line : left) ADD_FAILURE() << Name(host) << " still runs " << line;
    ExpectNoFiles(host);
  }
}

void HostBed::ExpectNoFiles(int host) {
  const std::set<std::string>& before = states_.at(static_cast<size_t>(host - 1));
  for (const std::string& line : StateOf(host)) {
    const bool is_file = line.rfind("/tmp/", 0) == 0 || line.rfind("/dev/shm/", 0) == 0;
    if (is_file && before.count(line) == 0) ADD_FAILURE() << Name(host) << " still has " << line;
  }
}

std::set<std::string> HostBed::StateOf(int host) {
  // A link that was down and is up again says so of its routes for a moment.
  const Answer answer =
      Run(host, "sed 's/^[0-9]* [0-9]* [^ ]* /mount /' /proc/self/mountinfo; " + Ip() +
                    " route | sed 's/ *linkdown//; s/^/route /'; for f in /tmp /run /dev/shm; do "
                    "ls -A $f | sed \"s|^|$f/|\"; done");
  std::set<std::string> lines;
  std::istringstream stream(answer.out);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

void HostBed::Remember() {
  states_.clear();
  for (int host = 1; host <= hosts_; ++host) states_.push_back(StateOf(host));
  shared_ = NamesIn(shared());
}

std::string HostBed::Reset() {
  for (const int host : std::set<int>(cut_)) RestoreLink(host);
  std::error_code error;
  for (int host = 1; host <= hosts_; ++host) {
    const std::set<std::string>& before = states_.at(static_cast<size_t>(host - 1));
    for (const std::string& line : StateOf(host)) {
      if (before.count(line) == 0) return Name(host) + " has " + line;
    }
  }
  for (const std::string& name : NamesIn(shared())) {
    if (shared_.count(name) == 0) std::filesystem::remove_all(shared() + "/" + name, error);
    if (error) return name + " cannot be removed: " + error.message();
  }
  std::filesystem::remove_all(folder_ + "/out/state", error);  // children's, for the user
  std::ofstream(folder_ + "/hosts") << names_;
  return "";
}

}  // namespace weft
