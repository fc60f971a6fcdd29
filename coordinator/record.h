// Facts on the wire and on disk: worker reports and journal records become events of job.h, events
// become records. Nothing else of the coordinator reads those messages. Pure.
#pragma once
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/job.h"
#include "proto/agent.pb.h"
#include "proto/driver.pb.h"
#include "proto/journal.pb.h"

namespace weft {

// A fact with its place in the journal.
struct StoredEvent {
  int64_t revision = 0;
  int64_t unix_ms = 0;
  Event event;
};

proto::Record ToRecord(const StoredEvent& stored);
// DataLoss if the record holds no fact that this version knows.
absl::StatusOr<StoredEvent> FromRecord(const proto::Record& record);

// The fact in a worker's report; none in a heartbeat or a step, which are not journaled.
std::optional<Event> FactOf(const proto::WorkerReport& report);
Registered RegistrationOf(const proto::WorkerReport& report);
proto::HostRanks Write(const HostShare& share);
RankEnded FactOf(const proto::RankEnded& report);
AttemptEnded FactOf(const proto::GroupEnded& report);
// InvalidArgument: a field is missing or unknown.
absl::StatusOr<Submitted> FactOf(const proto::SubmitJobRequest& request);
// A submission that breaks a rule is refused before it becomes a fact: InvalidArgument or what
// CheckRunnable says.
absl::Status CheckSubmission(const Submitted& submitted);

}  // namespace weft
