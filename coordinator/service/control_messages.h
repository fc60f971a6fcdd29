// Values of the coordinator become messages of weft.v1 here, and submissions requests to a Driver.
// Nothing else writes those messages. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/fleet/fleet.h"
#include "coordinator/service/job_entry.h"
#include "proto/driver.pb.h"
#include "proto/fleet.pb.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// "job-17".
std::string JobName(int64_t job);
// NotFound if it names no job.
absl::StatusOr<int64_t> ParseJobName(absl::string_view name);

// A Driver is through with a job in that phase. A fleet's job is over once its hosts are given
// back.
bool IsLastPhase(absl::string_view phase);
// A job's phase and the reason for it, for people.
struct PhaseWords {
  std::string phase;
  std::string reason;
};
PhaseWords PhaseOf(const FleetJob& job, const JobEntry& entry);

// `queue_place` 1: it is the next; 0: it is not queued. `waits_for`: of one that is.
v1::Job JobMessage(const Fleet& fleet, int64_t job, const JobEntry& entry, int64_t queue_place,
                   const std::string& waits_for, int64_t now_ms);
// The job of a private weftd, which brings its hosts. `owner_uid`: whose weftd it is.
v1::Job RunMessage(const proto::JobStatus& status, int64_t owner_uid, const std::string& owner);
// The hosts of such a job, by name.
v1::HostsReply RunHosts(const proto::JobStatus& status, int64_t owner_uid,
                        const std::string& owner);
// `offer`: null: the host has told nothing of itself.
v1::Host HostMessage(const Fleet& fleet, const std::string& machine, const proto::HostOffer* offer,
                     int64_t now_ms);

// The event of a Driver, without revision and job; none: it is nothing for people.
std::optional<v1::Event> EventMessage(const proto::JobEvent& event);

// Returns what the Driver of an allocation is told: the job as it was submitted, going on from what
// the one before it has saved.
absl::StatusOr<proto::SubmitJobRequest> DriverRequest(int64_t job, const FleetJob& placed,
                                                      const JobEntry& entry);
// The submission as a Driver takes it.
proto::SubmitJobRequest DriverRequestOf(const v1::Submission& submission);

}  // namespace weft
