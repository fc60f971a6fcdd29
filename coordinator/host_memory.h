// The memory that hosts offer and a plan may count on: where the agents of a job offer less than
// its cluster profile says, the plan is for what they offer, and names the host that binds. More
// than the profile says is never planned for. Used by hosts.h and planning.h. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/job_state.h"

namespace weft {

// Returns what each of `ranks` on the host has, less a sixteenth of a host's memory that is left to
// the system; no more than the job says, and as much where it is not known.
int64_t SlotBytes(const OfferedHost& host, int ranks, const JobSpec& spec);

// MemoryRanking says what the hosts with the most memory offer. Borrows the job.
class MemoryRanking {
 public:
  MemoryRanking(const Job& job, const std::vector<std::string>& machines);

  // The shape of so many hosts with so many ranks on each, with what memory the poorest of them
  // leaves where that is less than the job says.
  // REQUIRES: at least `nodes` of the machines take `ranks`.
  ClusterShape ShapeOf(int nodes, int ranks);

 private:
  using Offer = std::pair<int64_t, int64_t>;  // bytes of a rank, of the host
  const std::vector<Offer>& Ranked(int ranks);

  const Job& job_;
  const std::vector<std::string>& machines_;
  bool is_scarce_ = false;
  std::map<int, std::vector<Offer>> ranked_;  // by ranks; the most first
};

// Whether the host has the memory that the shape's plan counts on.
bool HasMemoryOf(const ClusterShape& shape, const OfferedHost& host, const Job& job);

// Whether there is no plan for this shape since there is none for the same with no less memory.
bool IsRefused(const ClusterShape& shape, const Job& job);

// `spec` on hosts of the shape. FailedPrecondition: the libraries alone need more memory.
absl::StatusOr<JobSpec> SpecFor(const ClusterShape& shape, JobSpec spec);

// " with 1.50 GiB a rank, not 2.00 GiB: host h2 has 3.00 GiB free for 2"; empty: as the job says.
std::string MemoryNote(const ClusterShape& shape, const Job& job);

}  // namespace weft
