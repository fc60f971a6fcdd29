// FleetDriver: the shell around the fleet, above one Driver for each job that is placed. One
// thread, one queue, rounds as Driver's: what has come becomes records, they are journaled
// together, and what follows from them is done and said after that: Drivers are started and asked
// to end, agents are sent to hosts and called back, people are answered. Decisions are the fleet's
// (fleet/). The parts for people's wishes, their questions, jobs and hosts are in fleet_people.cc,
// fleet_questions.cc, fleet_jobs.cc and fleet_hosts.cc.
//
// Public functions may be called from any thread and return at once; answers and port calls come
// from the driver's thread and must not block.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_door.h"
#include "coordinator/driver.h"
#include "coordinator/lease_book.h"
#include "coordinator/service/agent_rights.h"
#include "coordinator/service/caller.h"
#include "coordinator/service/fleet_book.h"
#include "coordinator/service/fleet_journal.h"
#include "coordinator/service/run_writer.h"
#include "coordinator/task_queue.h"
#include "process/clock.h"
#include "process/run_lock.h"

namespace weft {

struct FleetDriverOptions {
  std::string version;                   // of this build
  std::string state_folder;              // its journals are there
  std::optional<int64_t> lease_ms = {};  // of jobs, as Driver's
  int64_t offer_lease_ms = 8000;         // of hosts
  int64_t agent_patience_ms = 1000;      // before an agent that ended by itself is started again
  int64_t max_queued_bytes = int64_t{256} << 20;
  std::function<int64_t()> now_ms = BootTimeMs;
  std::function<int64_t()> unix_ms = UnixTimeMs;
  std::string boot = BootId();  // of the clock of now_ms
  // The fleet's journal cannot be written any more: the process has to end. Called once.
  std::function<void(const absl::Status& why)> on_broken = {};
};

// The stream of somebody who watches jobs, as AgentPort (outgoing.h).
struct JobsPort {
  std::function<void(const v1::WatchReply&)> send;
  std::function<void(const absl::Status&)> close;
};
// The stream of a standing agent.
struct OfferPort {
  std::function<void(const proto::OfferOrder&)> send;
  std::function<void(const absl::Status&)> close;
};

// Agents that are reached know of an absence within this.
inline constexpr int64_t kTellAbsenceMs = 2000;

// The fleet's journal is made shorter once it has so many records after its snapshot.
inline constexpr int64_t kMaxRecords = 100000;

class FleetDriver final {
 public:
  // Replays the fleet's journal, goes on with the jobs that were placed, and starts the thread.
  static absl::StatusOr<std::unique_ptr<FleetDriver>> Start(FleetDriverOptions options);
  ~FleetDriver();
  // Answers what waits with Unavailable, closes all ports and all Drivers, joins the thread.
  void Close();
  // Writes down, and tells agents, that nothing of what runs is placed elsewhere for so long, which
  // the next FleetDriver on the same state keeps: it is about to be closed. Blocks until they know,
  // at most kTellAbsenceMs.
  void GoAway(int64_t absent_ms);

  // ---- people: mutations are answered once they are durable ----
  void Submit(const Caller& caller, v1::SubmitRequest request, const Reply<v1::SubmitReply>& reply);
  void Stop(const Caller& caller, v1::StopRequest request, const Reply<v1::Job>& reply);
  void Checkpoint(const Caller& caller, v1::CheckpointRequest request, const Reply<v1::Job>& reply);
  void Pause(const Caller& caller, v1::PauseRequest request, const Reply<v1::Job>& reply);
  void Resume(const Caller& caller, v1::ResumeRequest request, const Reply<v1::Job>& reply);
  // The job that is to be resized, for which somebody plans before Resize; none: the wish has had
  // its answer before.
  void FindResized(const Caller& caller, v1::ResizeRequest request,
                   const Reply<std::optional<v1::Submission>>& reply);
  void Resize(const Caller& caller, v1::ResizeRequest request, const Reply<v1::Job>& reply);
  void DrainHost(const Caller& caller, v1::DrainHostRequest request, const Reply<v1::Host>& reply);
  void UndrainHost(const Caller& caller, v1::UndrainHostRequest request,
                   const Reply<v1::Host>& reply);
  void List(v1::ListRequest request, const Reply<v1::ListReply>& reply);
  void Get(v1::GetRequest request, const Reply<v1::Job>& reply);
  void Hosts(const Reply<v1::HostsReply>& reply);
  // Streams have ids that the caller chooses, each once.
  void Watch(int64_t id, v1::WatchRequest request, JobsPort port);
  void Unwatch(int64_t id);

  // ---- hosts ----
  void AttachOffer(int64_t id, OfferPort port);
  // False if there is no room for the report: then its stream has to end.
  bool TakeOffer(int64_t id, proto::OfferReport report);
  void DetachOffer(int64_t id);
  // Whoever hears an offer's heartbeat grants its lease, on any thread.
  LeaseBook& leases() { return leases_; }

  // The place of an agent of a job. Aborted: it has no right to one. From any thread.
  absl::StatusOr<AgentPlace> FindPlace(const proto::Hello& hello, const AgentPeer& peer) const;

 private:
  // A Runner is the Driver of a placed job.
  struct Runner {
    int64_t allocation = 0;
    std::vector<RunLock> locks;  // of its run folder and its checkpoints
    std::shared_ptr<Driver> driver;
    AgentRights rights;
    FleetStop told = FleetStop::kNone;
    proto::JobStatus stands;  // told before the events that lead to it
    bool is_over = false;     // the Driver has nothing more to do
    bool is_writing = false;  // files of its run
    absl::Status looked_at;   // what was found of its end: not OK, and it was none
    int64_t over_ms = 0;      // when it was over
    std::string end;          // "COMPLETED"
    std::string reason;
    std::map<std::string, int64_t> not_before_ms;  // by machine: its agent is started then
  };
  using Allocation = std::pair<int64_t, int64_t>;  // job, allocation
  struct Offer {
    OfferPort port;
    std::string machine;           // empty: has not made its offer yet
    int64_t sequence = 0;          // highest one heard
    bool is_due = false;           // for an acknowledgement, at the round's end
    std::set<Allocation> running;  // agents, as far as is known
    std::set<Allocation> stopped;  // of them: was told to end
  };
  struct Watcher {
    JobsPort port;
    int64_t job = 0;  // 0: all
    int64_t seen = 0;
  };
  // A Change is what a mutation comes to; the reply is made once it is so.
  template <typename Message>
  struct Change {
    proto::FleetRecord record;  // no fact: nothing changes
    std::function<Message()> reply;
  };

  explicit FleetDriver(FleetDriverOptions options);
  absl::Status Open();

  void Run();
  void RunOnce();
  proto::FleetRecord StartedRecord() const;
  int64_t PromisedUntilMs() const;
  std::vector<std::shared_ptr<Driver>> WriteAbsence(int64_t absent_ms);
  void Decided();
  void Settle();
  void ShortenJournal();
  void EndEverything();

  // The record's revision and time are set here, and its answer is made once it is part of the
  // book. Returns whether it is.
  bool Happened(proto::FleetRecord record, const std::function<std::string()>& reply = {});
  void Break(const absl::Status& why);
  void WriteRound();
  void AnswerAll(const absl::Status& durable);
  // The answer to whoever finds the queue full or closed.
  static absl::Status Busy();

  // ---- people ----
  template <typename Message, typename Request>
  using Maker = std::function<absl::StatusOr<Change<Message>>(const Request&)>;
  // One that cannot wait is carried out while the journal cannot be written; its answer waits.
  enum class Haste { kCanWait, kCannotWait };
  template <typename Message, typename Request>
  void Mutate(const char* call, Request request, const Reply<Message>& reply,
              const Maker<Message, Request>& make, Haste haste = Haste::kCanWait);
  template <typename Message, typename Request>
  absl::Status Begin(const char* call, const Request& request, const Maker<Message, Request>& make,
                     Haste haste = Haste::kCanWait);
  template <typename Message>
  void AnswerLater(const std::string& request_id, const Reply<Message>& reply,
                   const absl::Status& begun);
  template <typename Message>
  void AnswerLater(const Reply<Message>& reply, absl::StatusOr<Message> answer);
  // For one that changes nothing: also while the journal is behind, and then without a revision
  // that a successor may give to something else.
  template <typename Message>
  void AnswerQuestion(const Reply<Message>& reply, absl::StatusOr<Message> answer);
  // NotFound, PermissionDenied, Aborted, or FailedPrecondition if it is over.
  template <typename Request>
  absl::StatusOr<int64_t> JobToChange(const Caller& caller, const Request& request) const;
  absl::Status CheckResumable(int64_t job) const;
  absl::Status CheckHostsAreKnown(int64_t job, const v1::ResizeRequest& asked) const;
  absl::StatusOr<std::string> FindHost(const std::string& name) const;
  absl::StatusOr<Change<v1::SubmitReply>> OnSubmit(const v1::SubmitRequest& request,
                                                   const absl::StatusOr<FleetRequest>& read);
  Change<v1::Job> ChangeOf(int64_t job, proto::FleetRecord record);
  Change<v1::Host> ChangeOf(const std::string& machine, proto::FleetRecord record);
  absl::Status OnWatch(int64_t id, const v1::WatchRequest& request, const JobsPort& port);
  absl::StatusOr<v1::ListReply> OnList(const v1::ListRequest& request);
  absl::StatusOr<int64_t> FindJob(const std::string& name) const;
  v1::Job MessageOf(int64_t job);
  v1::Host MessageOf(const std::string& machine) const;
  void TellWatchers();
  void SendEvents(Watcher& watcher);
  void SendSteps();
  bool IsOfInterest(const Watcher& watcher, const v1::Event& event) const;

  // ---- jobs ----
  void KeepRunners();
  void TellEnds(bool now_alone);
  absl::Status StartRunner(int64_t job, const FleetJob& placed);
  // The Driver of an allocation, from where its journal ends.
  absl::StatusOr<std::unique_ptr<Driver>> StartDriver(int64_t job, int64_t allocation);
  void WatchRunner(int64_t job, const Runner& runner);
  Runner* FindRunner(int64_t job, int64_t allocation);
  void WriteFiles(int64_t job, const Runner& runner, const proto::SubmitJobRequest& request);
  void OnWritten(int64_t job, int64_t allocation, const absl::Status& end);
  void OnNotWritten(int64_t job, int64_t allocation, const std::string& what);
  void OnNews(int64_t job, int64_t allocation, const std::vector<proto::JobEvent>& events);
  void OnRunnerOver(int64_t job, int64_t allocation, const absl::Status& why);
  void DropRunner(int64_t job);
  bool HasAgents(int64_t job, const FleetJob& placed) const;
  void EndJobs();
  std::string JournalOf(int64_t job, int64_t allocation) const;

  // ---- hosts ----
  void OnOfferReport(int64_t id, const proto::OfferReport& report);
  void OnOffer(int64_t id, Offer& offer, const proto::HostOffer& words);
  absl::Status CheckNotOfOthers(const proto::HostOffer& words) const;
  void OnAgentEnded(Offer& offer, const proto::AgentEnded& ended);
  void RefuseOffer(int64_t id, const absl::Status& why);
  void TakeLeave(int64_t id);
  void ForgetOffer(int64_t id);
  void LookAtLeases();
  void KeepAgents();
  void KeepAgentsOf(Offer& offer);
  const Offer* OfferOf(const std::string& machine) const;

  int64_t Now() const { return options_.now_ms(); }

  const FleetDriverOptions options_;
  LeaseBook leases_;

  // Below: the driver's thread alone.
  std::unique_ptr<FleetJournal> journal_;
  FleetBook book_;
  RunWriter writer_;                   // has a thread of its own
  std::map<int64_t, Runner> runners_;  // by job
  std::vector<EndJob> ends_;           // as of this round
  std::map<int64_t, Offer> offers_;    // by stream
  std::map<std::string, int64_t> offer_of_machine_;
  std::map<int64_t, Watcher> watchers_;
  std::map<int64_t, v1::Event> new_steps_;   // newest step of each job that was not told yet
  std::map<int64_t, v1::Event> last_steps_;  // newest step of each placed job
  std::map<int64_t, QueuedJob> queue_;       // by job, as of queue_revision_
  std::map<int64_t, int64_t> queue_places_;
  int64_t queue_revision_ = -1;
  struct Written {
    proto::FleetRecord record;
    std::function<std::string()> reply;  // of one with an answer
  };
  std::vector<Written> round_;  // what has happened in it, in order
  std::vector<std::function<void(const absl::Status&)>> answers_;  // at the round's end
  std::vector<std::function<void(const absl::Status&)>> looks_;    // the same, to questions
  int64_t durable_revision_ = 0;
  int64_t shorten_at_ = kMaxRecords;
  bool broken_ = false;
  bool goes_away_ = false;   // places nothing any more
  bool has_opened_ = false;  // Drivers from now on are of jobs that no weftd before has placed

  struct Door {
    std::shared_ptr<Driver> driver;
    AgentRights rights;
  };
  mutable std::mutex doors_mutex_;
  std::map<std::string, Door> doors_;  // by job's name

  TaskQueue queue_of_tasks_;
  std::thread thread_;
};

}  // namespace weft
