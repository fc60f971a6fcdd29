// HostBed: several hosts on this machine, each with an address, a name, processes, /tmp, /dev/shm
// and an sshd of its own, joined by a switch whose links can be cut. Everything lives in namespaces
// that processes of the test hold, the switch too: nothing has a name outside, beds stand side by
// side, and the kernel takes all of it away with those processes, even if the test is killed.
// A suite has one bed: after each test it is made as it was built, or thrown away (kept_bed.h).
// Ranks that start there keep a pace (tiny_model.h) unless they are told otherwise.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/end_to_end/child.h"

namespace weft {

class HostBed {
 public:
  // Why there can be no bed here; empty: there can. Root and the programs are needed.
  static std::string Missing();

  // REQUIRES: Missing() is empty. Fails the test if the hosts do not come up.
  explicit HostBed(int hosts);
  ~HostBed();
  HostBed(const HostBed&) = delete;
  HostBed& operator=(const HostBed&) = delete;

  // Hosts count from 1: "h1", 10.78.0.11.
  static std::string Name(int host) { return "h" + std::to_string(host); }
  static std::string Address(int host) { return "10.78.0.1" + std::to_string(host); }
  static constexpr char kNetwork[] = "10.78.0.0/24";

  // The same on every host, and here; a host's /tmp is its own.
  std::string shared() const { return folder_ + "/shared"; }
  // For ssh between the hosts: "-F <file>".
  std::string ssh_options() const { return "-F " + folder_ + "/ssh_config"; }
  // A folder for PATH, whose `ssh` is the system's, run on host 1.
  std::string ssh_of_host1() const { return folder_ + "/bin1"; }

  // `command`, so that it runs on the host. command[0] is absolute.
  std::vector<std::string> On(int host, std::vector<std::string> command) const;

  // Runs a shell's command there, at most a minute.
  struct Answer {
    int exit_code = -1;
    std::string out;
    std::string err;
  };
  Answer Run(int host, const std::string& command);
  // A program that goes on; its output is in the files that its Stdout and Stderr read.
  std::unique_ptr<Child> Start(int host, const std::vector<std::string>& command,
                               const std::map<std::string, std::string>& env = {});

  void CutLink(int host);
  void RestoreLink(int host);

  // A descriptor of its network, for setns(2).
  int OpenNetwork(int host) const;

  // The command lines that run there, without what makes the host one.
  std::vector<std::string> Processes(int host);
  // Nothing of a test is left on any host: no process, nothing in /tmp and /dev/shm.
  void ExpectNothingLeft();
  // The part of it that is about files, of one host.
  void ExpectNoFiles(int host);

  // The bed as it stands is what Reset comes back to. Its constructor says so; who adds something
  // that is to stay says so again.
  void Remember();
  // Reset leaves this name in the shared folder, too.
  void Keep(const std::string& name) { shared_.insert(name); }
  // Restores links, /etc/hosts and the shared folder. Returns what else is new on a host, for which
  // the bed has to be thrown away: a mount, a route, a file in /tmp, /run or /dev/shm. Empty:
  // nothing. REQUIRES: ExpectNothingLeft.
  std::string Reset();

 private:
  std::unique_ptr<Child> Local(const std::vector<std::string>& command,
                               const std::map<std::string, std::string>& env = {});
  void RunHere(const std::vector<std::string>& command);
  void SetLink(int host, const char* state);
  // A shell's words that put the clone into the host's /tmp if it lies in this machine's.
  std::string BindClone(const std::string& tmp) const;
  // A line for each mount, route and file there.
  std::set<std::string> StateOf(int host);
  void WriteFiles();
  void StartHost(int host);
  // The first process in the namespaces that `holder` (an unshare) has made.
  int InnerPid(const Child& holder) const;

  std::string folder_;
  const int hosts_;
  int children_ = 0;
  std::unique_ptr<Child> switch_;
  int switch_pid_ = 0;
  std::vector<std::unique_ptr<Child>> holders_;
  std::vector<int> pids_;                      // of each host's first process
  std::string names_;                          // of all hosts, as /etc/hosts has them
  std::set<int> cut_;                          // hosts whose link is
  std::vector<std::set<std::string>> states_;  // of each host, as remembered
  std::set<std::string> shared_;               // names in the shared folder, as remembered
};

}  // namespace weft
