// A run inside a Slurm allocation: its hosts are the allocation's, its end is Slurm's business too.
// Speaks to people.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_list.h"
#include "launcher/machine/child_process.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/host_book.h"
#include "launcher/slurm/slurm_job.h"
#include "plan/spec/job_spec.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

std::vector<ListedHost> HostsOf(const SlurmAllocation& allocation);
AgentStarter StarterOf(const SlurmAllocation& allocation, const std::string& container);

// Asks Slurm when the allocation ends, and calls `notice` once, from a thread of its own,
// `notice_s` before that. The end may move, so it is asked for again then. A site's --signal, which
// comes earlier, makes it needless.
class EndTimer {
 public:
  EndTimer(std::string job_id, double notice_s, std::function<void()> notice);
  ~EndTimer();
  EndTimer(const EndTimer&) = delete;
  EndTimer& operator=(const EndTimer&) = delete;

 private:
  void Wait();
  bool Sleep(double seconds);  // false: it is to end

  const std::string job_id_;
  const double notice_s_;
  const std::function<void()> notice_;
  std::mutex mutex_;  // guards ending_
  bool ending_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

// Takes those hosts out that have failed this run in an allocation before and are to be left out
// (launcher/slurm/failed_hosts.h), as long as `least` are left: they are in `left_out` then.
// Returns lines for people.
std::vector<std::string> LeaveOutFailedHosts(const SlurmAllocation& allocation,
                                             const std::string& run_folder, int least,
                                             std::vector<ListedHost>* hosts,
                                             std::vector<ListedHost>* left_out);

// Has removed what a killed agent of the run has left on the hosts, since no other agent comes
// there that would. Nobody waits for it: a host may not answer. What is returned ends with the run.
std::vector<ChildProcess> ClearHosts(const AgentStarter& starter, const JobSpec& job,
                                     const std::string& run_id,
                                     const std::vector<ListedHost>& hosts);

// Keeps the book of a batch job's hosts; null for an allocation that no requeue comes to.
std::unique_ptr<HostBook> OpenHostBook(const SlurmAllocation& allocation,
                                       const std::string& run_folder);
// Takes what a check before a generation has found, if the event is one that says whether a host is
// of use. Without a book it does nothing.
void TakeCheck(const v1::Event& event, HostBook* book);

// Gives hosts that have no domains those of Slurm's topology, next to each other (topology.h).
// Returns a line for people; empty: Slurm knows of none that parts them.
std::string TakeTopology(std::vector<ListedHost>* hosts);

// Prints what Slurm's accounting says of the job, where it is on and answers soon.
void PrintAccounting(const SlurmAllocation& allocation);

// Has it decided who runs the job again, says so, and returns what the command ends with:
// kExitTryAgain if and only if the batch script is to see to it. `code`: what it would be
// elsewhere.
int EndInSlurm(const SlurmAllocation& allocation, const std::string& run_folder,
               const EndedRun& run, int code);

}  // namespace weft
