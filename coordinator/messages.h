// The coordinator says these messages: orders to workers and to agents, a job's status and the
// events that watchers see. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/job.h"
#include "coordinator/record.h"
#include "proto/agent.pb.h"
#include "proto/driver.pb.h"

namespace weft {

// StepsSoFar is known without the journal: reported by workers, forgotten with the process.
struct StepsSoFar {
  int64_t step = 0;        // last one that rank 0 reported
  int64_t peak_bytes = 0;  // largest resident set of any worker
};

// REQUIRES: the generation is at least kOpen, so there is a layout.
proto::Order TrainOrder(const Job& job);
proto::Order BeginOrder(const Job& job);
proto::Order SaveNowOrder(const Job& job);
proto::Order StopOrder(const Job& job);
proto::Order CommitOrder(const Job& job);    // REQUIRES: a save is pending
proto::Order SaveOverOrder(const Job& job);  // REQUIRES: a save of the generation has ended
proto::Order AbortOrder(int64_t generation, const std::string& reason);
proto::Order NotesOrder(int64_t generation, const proto::Notes& notes);

proto::AgentOrder LaunchOrder(const Job& job);  // REQUIRES: the generation is launched
// The host of `share` is told all of that if it is the first, which may start mpirun for all of
// them; else its own share and the first one's. Thousands of hosts need not know each other.
proto::AgentOrder LaunchOrderFor(const HostShare& share, const HostShare& first,
                                 const proto::AgentOrder& whole);
proto::AgentOrder StopGroupOrder(const StopWorkers& stop);
proto::AgentOrder LeaseOrder(int64_t sent_boot_ms, int64_t lease_ms);
proto::AgentOrder HangUpOrder(int64_t stream, const absl::Status& why);

proto::JobStatus StatusOf(const Job& job, const StepsSoFar& progress);

// Watchers hear about this part of a job.
struct Watched {
  std::string job_id;
  Phase phase = Phase::kSubmitted;
  std::string reason;
  std::optional<Failure> failure;
  int64_t generation = 0;
  int64_t save = 0;  // number of the generation's newest save that has ended
};
Watched WatchedPart(const Job& job);

// The events of one fact that led from `before` to `after`; often none.
std::vector<proto::JobEvent> EventsOf(const Watched& before, const Job& after,
                                      const StoredEvent& stored);

}  // namespace weft
