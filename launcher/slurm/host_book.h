// HostBook takes down in a run folder's slurm.json what becomes of the hosts of an allocation, for
// those to come (failed_hosts.h). It asks Slurm and writes from a thread of its own: whoever tells
// it of a host waits for neither. Safe from any thread.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/slurm/slurm_job.h"

namespace weft {

struct HostBookOptions {
  std::string run_folder;
  std::string job_id;  // the allocation's, as scontrol names it
  // Returns Slurm's record of that job; within seconds, since the last answer is waited for.
  std::function<absl::StatusOr<SlurmJob>()> ask;
  std::function<int64_t()> now_unix_s;
  std::function<void(const std::string&)> warn;  // of a file that cannot be written
};

class HostBook {
 public:
  explicit HostBook(HostBookOptions options);
  // Waits until all that was told is taken down: two answers of Slurm's at most.
  ~HostBook();
  HostBook(const HostBook&) = delete;
  HostBook& operator=(const HostBook&) = delete;

  // The host was lost, and why; OK: it was heard again. Where Slurm itself has ended the job, or
  // takes its nodes, or does not answer, nobody can tell, and nothing is taken down.
  void Take(const std::string& host, const absl::Status& state);
  // The host was checked before a generation, as often as anything is found out of it: a fault
  // counts as a loss, once until a check finds the host well.
  void TakeCheck(const std::string& host, const absl::Status& state);

 private:
  struct Fact {
    std::string host;
    absl::Status state;
    int64_t unix_s = 0;
  };
  void Run();
  void TakeDown(const std::vector<Fact>& facts) const;

  const HostBookOptions options_;
  std::mutex mutex_;  // guards the next three
  std::vector<Fact> facts_;
  std::set<std::string> faulty_;  // by their checks
  bool ending_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace weft
