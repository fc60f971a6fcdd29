// FleetBook is what a weftd that serves many jobs knows, as a value: the fleet, what is told of
// each job, and what mutations were answered. It is made of FleetRecords
// (proto/fleet_journal.proto) alone, live as from the journal. Pure: no clock, no disk.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/fleet/fleet.h"
#include "coordinator/service/fleet_snapshot.h"
#include "coordinator/service/job_entry.h"
#include "proto/fleet_journal.pb.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// Answers are kept for a day, or until so many newer ones are.
inline constexpr int64_t kAnswerAgeMs = int64_t{24} * 3600 * 1000;
inline constexpr size_t kMaxAnswers = 100000;
// Events are kept for those who watch from an earlier revision.
inline constexpr size_t kMaxKeptEvents = 20000;

class FleetBook final {
 public:
  // Takes in what has happened. DataLoss: the record is of no kind that is known here, or its
  // revision is not the next one.
  absl::Status Take(const proto::FleetRecord& record);

  // All of it, at its revision, and back. DataLoss: the snapshot is of no kind that is known here.
  proto::FleetSnapshot Snapshot() const;
  absl::Status Restore(const proto::FleetSnapshot& snapshot, int64_t revision);

  const Fleet& fleet() const { return parts_.fleet; }
  int64_t revision() const { return revision_; }
  // REQUIRES: the fleet knows the job.
  const JobEntry& entry(int64_t job) const { return parts_.entries.at(job); }
  // Returns what hosts have told of themselves, by machine.
  const std::map<std::string, proto::HostOffer>& offers() const { return parts_.offers; }

  // Tells fleets apart on the hosts that they share; empty: none has begun.
  const std::string& fleet_id() const { return fleet_id_; }
  // Tokens of agents are made of it (process/agent_token.h); empty: none was journaled yet.
  const std::string& agent_secret() const { return agent_secret_; }
  // Agents of allocations up to this one were started before there were tokens.
  int64_t tokens_after() const { return tokens_after_; }
  // Unix time until which an earlier weftd has promised to place nothing elsewhere; 0: none has.
  int64_t absent_until_ms() const { return absent_until_ms_; }
  // The same by the clock of leases.
  const proto::AbsenceByBoot& absent_by_boot() const { return absent_by_boot_; }
  // The rest of that promise is returned, in the boot of that name and at these times; 0 or less:
  // nothing. The time of day, which may be set meanwhile, counts only where the host was booted
  // since.
  int64_t PromiseLeftMs(const std::string& boot, int64_t boot_ms, int64_t unix_ms) const;

  // Returns the answer that was kept for the id; null: none.
  const proto::Answered* FindAnswer(const std::string& request_id) const;

  // The reply of the answer that was kept with the newest record.
  void SetReply(const std::string& request_id, const std::string& reply);

  // Returns what people are told, oldest first: whole revisions.
  const std::deque<v1::Event>& events() const { return events_; }
  // Highest revision of which events were forgotten.
  int64_t forgotten_revision() const { return forgotten_revision_; }

 private:
  void TakeFact(const proto::FleetRecord& record);
  void TakeNews(const proto::FleetJobNews& news, const proto::FleetRecord& record);
  void TellPhase(int64_t job, const proto::FleetRecord& record);
  void TellHost(const proto::FleetHostFact& fact, const std::string& what,
                const proto::FleetRecord& record);
  v1::Event& AddEvent(const proto::FleetRecord& record);
  void Keep(const proto::Answered& answered, int64_t unix_ms);
  void ForgetWhatIsOver();

  FleetParts parts_;
  int64_t revision_ = 0;
  std::string fleet_id_;
  std::string agent_secret_;
  int64_t tokens_after_ = 0;
  int64_t absent_until_ms_ = 0;
  proto::AbsenceByBoot absent_by_boot_;
  std::unordered_map<std::string, proto::Answered> answers_;  // by request id
  std::deque<std::pair<int64_t, std::string>> answered_;      // Unix time and id, oldest first
  std::deque<v1::Event> events_;
  int64_t forgotten_revision_ = 0;
};

// The fact of a record as the fleet has it; none in one that changes nothing of it.
std::optional<FleetEvent> FactOf(const proto::FleetRecord& record);
// Returns what the job of a submission asks the fleet for. InvalidArgument: it breaks a rule.
absl::StatusOr<FleetRequest> RequestOf(const v1::SubmitRequest& request, const std::string& owner,
                                       int64_t owner_uid);

}  // namespace weft
