// ThreeHosts is three hosts on one machine: namespaces with an address, a name, a /tmp and a
// /dev/shm of their own, and a switch between them. Nothing of it has a name on the machine: it
// lives as long as the processes that hold it, which the kernel kills with this one. Needs root and
// iproute2.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/machine/child_process.h"

namespace weft {

class ThreeHosts {
 public:
  static constexpr int kHosts = 3;

  // Unavailable with the reason if this machine cannot have one.
  static absl::StatusOr<std::unique_ptr<ThreeHosts>> Make();
  ~ThreeHosts();
  ThreeHosts(const ThreeHosts&) = delete;
  ThreeHosts& operator=(const ThreeHosts&) = delete;

  // Hosts count from 0; the first is "h1" at 10.78.0.11. All see the machine's other files.
  static std::string Name(int host);
  static std::string Address(int host);

  // A child of this process, on that host.
  absl::StatusOr<ChildProcess> Start(int host, ChildOptions options) const;
  // Takes the host's link to the others away, and gives it back.
  void SetLink(int host, bool up) const;

  // Processes on the host, beside the one that holds it, as "pid command".
  std::vector<std::string> Processes(int host) const;
  // The same of those whose command's first words are `program`.
  std::vector<pid_t> ProcessesOf(int host, const std::string& program) const;
  // Returns what lies in its /tmp and /dev/shm.
  std::vector<std::string> TemporaryFiles(int host) const;
  // A folder that all hosts share.
  const std::string& shared() const { return folder_; }

 private:
  ThreeHosts() = default;
  absl::Status Build();
  absl::StatusOr<pid_t> Hold(const std::string& commands);
  std::string OnHost(pid_t holder) const;

  std::string folder_;
  std::vector<ChildProcess> holders_;  // the switch, then the hosts
};

}  // namespace weft
