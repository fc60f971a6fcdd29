// SlurmBed: a real Slurm on the hosts of a HostBed: slurmctld on the last of them, which is the
// head that people log in to and no node of the cluster; slurmd and munge on each of the others.
// All daemons run in the hosts' namespaces and end with them. A suite has one bed (kept_bed.h).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/end_to_end/child.h"
#include "tests/hosts/host_bed.h"

namespace weft {

class SlurmBed {
 public:
  static constexpr int kNodes = 3;
  static constexpr int kHead = kNodes + 1;
  static constexpr int kCpus = 4;  // of a node, as Slurm believes

  // Why there can be no bed here; empty: there can.
  static std::string Missing();

  // REQUIRES: Missing() is empty. Throws if the nodes are not idle within a minute. `more`: lines
  // for slurm.conf. There are the partitions `low` (the default; 25 s of grace), `high`, which
  // preempts it, and `gpu`; Slurm believes that each node has 8 GPUs.
  explicit SlurmBed(const std::string& more = "");
  ~SlurmBed();

  HostBed& hosts() { return *hosts_; }
  std::string shared() const { return hosts_->shared(); }
  // A shell's command on the head; its output without the last line's end. Fails the test unless
  // it exits with 0.
  std::string Head(const std::string& command);
  // One field of `scontrol show job`; empty: Slurm does not know the job, or the field.
  std::string JobField(const std::string& job, const std::string& field);
  // Waits until the job's state is one of `states`; returns the last one seen.
  std::string AwaitState(const std::string& job, const std::vector<std::string>& states,
                         double timeout_s);
  // Returns what slurmctld and the slurmd have said, for a failure's text.
  std::string Logs() const;

  // kill -9 of slurmd; StartNode brings it back.
  void KillSlurmd(int node);
  void StartNode(int node);
  // kill -9 of all that Slurm and weft have there, and an empty /dev/shm: as after a reboot.
  void KillNode(int node);

  // Nothing of a job is left on any host: no process, nothing in /tmp and /dev/shm.
  void ExpectNothingLeft();
  // Cancels jobs and waits until all nodes are idle, then as HostBed's.
  std::string Reset();

 private:
  bool NodesAreIdle();
  void WriteFiles(const std::string& more);
  void StartMunge(int host);
  void Daemon(int host, const std::vector<std::string>& command);

  std::unique_ptr<HostBed> hosts_;
  std::string folder_;
  std::vector<std::unique_ptr<Child>> daemons_;
};

}  // namespace weft
