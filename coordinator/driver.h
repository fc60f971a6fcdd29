// Driver: the shell around the pure job. One thread, one queue: a message becomes a fact, Apply
// changes the job, Decide says what is due, and the driver does it: orders to the workers' and the
// agent's streams, events to watchers. It takes no decision of its own. Whatever has come by then
// is one round: its facts are journaled together, and what follows from them is said after that.
// The parts for agents, ranks, checks of hosts and hangs are in driver_agents.cc, driver_ranks.cc,
// driver_preflight.cc and driver_hangs.cc.
//
// Public functions may be called from any thread and return at once; answers and port calls come
// from the driver's thread and must not block.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/check_round.h"
#include "coordinator/hang_watch.h"
#include "coordinator/job.h"
#include "coordinator/journal.h"
#include "coordinator/lease_book.h"
#include "coordinator/liveness.h"
#include "coordinator/messages.h"
#include "coordinator/note_board.h"
#include "coordinator/outgoing.h"
#include "coordinator/patient_journal.h"
#include "coordinator/planning.h"
#include "coordinator/slow_rank.h"
#include "coordinator/task_queue.h"
#include "process/clock.h"

namespace weft {

struct DriverOptions {
  std::string version;              // of this build
  std::optional<int64_t> lease_ms;  // instead of fault_tolerance.heartbeat_timeout_seconds
  int64_t max_queued_bytes = int64_t{256} << 20;  // of reports that wait
  std::function<int64_t()> now_ms = BootTimeMs;   // from any thread
  // For people, and to number what outlives a restart.
  std::function<int64_t()> unix_ms = UnixTimeMs;
  // Without one, RunOnce does what there is to do: so a test makes the time and the order.
  bool own_thread = true;
  int64_t check_again_ms = 30000;  // a host that failed its check; each time twice as late
  // A coordinator that was here before has promised that nothing of the job is placed elsewhere
  // until then, by now_ms, and a lease; 0: none has.
  int64_t promised_until_ms = 0;
  bool writes_tokens = true;  // into a job's shared folders: hosts that are checked look for them
  // The journal cannot be written any more, nor training go on without it: the process has to end.
  // Called once.
  std::function<void(const absl::Status& why)> on_broken;
};

template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;
using Acknowledge = std::function<void(absl::Status)>;

// An AgentStay says for how long an agent may work for a job.
enum class AgentStay {
  kForTheJob,
  kForItsGeneration,  // it came before agents had tokens: the next one is started by another
};

// A rank's stream lies in that of its agent.
struct RankPort {
  int64_t agent = 0;   // id of the agent's stream
  int64_t stream = 0;  // as that agent counts them
};
// The stream of a watcher, as AgentPort (outgoing.h).
struct WatcherPort {
  std::function<void(const std::vector<proto::JobEvent>&)> send;
  std::function<void(const absl::Status&)> close;
  // Told with all events that are journaled, before them: how the job stands after them. May be
  // none.
  std::function<void(const proto::JobStatus&)> stands = {};
};

class Driver final {
 public:
  // Replays the journal and starts the thread.
  static absl::StatusOr<std::unique_ptr<Driver>> Start(std::unique_ptr<Journal> journal,
                                                       DriverOptions options);
  ~Driver();

  // Answers what waits with Unavailable, closes all ports, joins the thread; whatever comes later
  // is answered with Unavailable. From one thread.
  void Close();
  // One round: takes what has come, finds what time alone has made true, acts, and says what
  // follows once it is durable. REQUIRES: no own thread.
  void RunOnce();
  // The state as of now. REQUIRES: no own thread.
  const Job& job() const { return job_; }

  void Submit(proto::SubmitJobRequest request, const Reply<proto::SubmitJobReply>& reply);
  void GetJob(proto::JobRequest request, const Reply<proto::JobStatus>& reply);
  void StopJob(proto::StopJobRequest request, const Acknowledge& reply);
  // All ranks save at the next step's end, and go on.
  void Checkpoint(proto::CheckpointJobRequest request, const Acknowledge& reply);
  // Streams have ids that the caller chooses, each once.
  void Watch(int64_t id, proto::WatchRequest request, WatcherPort port);
  void Unwatch(int64_t id);
  void AttachAgent(int64_t id, AgentPort port, AgentStay stay = AgentStay::kForTheJob);
  // A rank's stream has to be attached before it reports.
  bool Attach(int64_t id, RankPort port);
  // These, as Attach, return false if there is no room for the report: then its stream has to end,
  // since a later report's acknowledgement would cover this one too. Both sides begin again with a
  // new one.
  bool TakeAgentReport(int64_t id, proto::AgentReport report);
  bool Report(int64_t id, proto::WorkerReport report);
  // An agent's heartbeat, whose lease was granted already: these streams of its ranks were heard.
  bool Heard(int64_t id, std::vector<int64_t> streams);
  void DetachAgent(int64_t id);
  void Detach(int64_t id);

  // Tells agents that they and their ranks may go on for so long without a coordinator, counted
  // from their newest lease; `told` is called once that is on its way, and leases() says who knows.
  void TellAbsence(int64_t absent_ms, std::function<void()> told);

  // Whoever hears an agent's heartbeat grants its lease, on any thread, by the driver's clock.
  LeaseBook& leases() { return leases_; }
  int64_t now_ms() const { return options_.now_ms(); }

 private:
  struct Stream {
    RankPort port;
    int rank = -1;  // -1: has not registered yet
    int64_t generation = 0;
    int64_t sequence = 0;      // highest one heard
    int64_t acknowledged = 0;  // highest one that it was told of
    bool is_due = false;       // for an acknowledgement, at the round's end
    bool is_welcome = false;   // was told so
    int64_t told_commit = 0;   // number of the save
    int64_t told_save = 0;     // number of the wish
    size_t told_notes = 0;
  };
  // Duties are levels, orders are sent once per stream: which of the generation's streams, in the
  // order in which they registered, were told. Another generation or number begins anew.
  struct Told {
    int64_t generation = 0;
    int64_t number = 0;  // of a save
    size_t streams = 0;
  };
  struct Agent {
    Outgoing::Port port;
    AgentStay stay = AgentStay::kForTheJob;
    std::string host;  // empty: has not said Hello yet
    std::string machine;
    std::string version;  // that its ranks have to have
    std::string mpi;      // Host's
    bool is_of_fleet = false;
    bool takes_absence = false;
    int64_t sequence = 0;  // highest one heard
    bool is_due = false;   // for an acknowledgement, at the round's end
    // Told on this stream, or known to the agent from before.
    int64_t told_launch = 0;  // generation
    int64_t told_stop = 0;    // generation
    std::string told_folder;  // checkpoint that it was told to read
  };

  // mpirun may have brought it about. It is the one that was seen first, and is held until those of
  // other hosts have had time to come.
  struct DoubtfulEnd {
    RankEnded fact;
    int64_t seen_ms = 0;
    int64_t until_ms = 0;
    std::vector<AttemptEnded> ends = {};  // of hosts where nothing is left since; they say no cause
  };
  // A Look is a question to all hosts while nothing moves, and the answers.
  struct Look {
    int64_t number = 0;
    int64_t asked_ms = 0;
    std::map<std::string, std::vector<RankSeen>> seen;  // by machine
    std::optional<Hung> verdict;                        // its stacks are being taken
    int64_t verdict_ms = 0;
    std::set<std::string> stacks_from;  // machines that have answered
  };

  Driver(std::unique_ptr<Journal> journal, DriverOptions options);
  absl::Status Replay();

  // The queue's own words (task_queue.h).
  using Room = TaskQueue::Room;
  using Wake = TaskQueue::Wake;
  bool Post(TaskQueue::Task task, int64_t bytes = 0, Room room = Room::kBounded,
            Wake wake = Wake::kNow) {
    return queue_.Post(std::move(task), bytes, room, wake);
  }
  void Run();
  void Tick();
  // The end of a round: its facts become durable, and what it has to say is said.
  void Settle();
  void EndEverything();

  // Facts. `written`: as the journal has it already.
  void Happened(const Event& event, const StoredEvent* written = nullptr);
  // Makes a fact of what somebody wishes once it is durable; Unavailable, and no fact, while the
  // journal cannot be written. So nobody is told OK of what a successor would not know of.
  absl::Status Wish(const Event& event);
  void Break(const absl::Status& why);
  void Publish(const std::vector<proto::JobEvent>& events);
  void ToWatchers(const std::vector<proto::JobEvent>& events);
  void SendLater(const WatcherPort& watcher, const std::vector<proto::JobEvent>& events);
  void RememberEvents(const Watched& before, const std::vector<proto::JobEvent>& events);
  // Answers at the round's end, if its facts are durable then.
  template <typename T>
  void AnswerLater(const Reply<T>& reply, absl::StatusOr<T> answer) {
    outgoing_.Then([reply, answer = std::move(answer)](const absl::Status& durable) {
      reply(durable.ok() ? answer : durable);
    });
  }

  // Duties.
  void Act();
  bool Carry(const Command& command);
  void Do(const PlanJob&) { Happened(PlanOf(job_)); }
  void Do(const LaunchWorkers& launch);
  void Do(const StopWorkers& stop);
  void Do(const StartTraining& start);
  void Do(const BeginSteps& begin);
  void Do(const StopTraining& stop);
  void Do(const SaveSteps& save);
  void Do(const GrantCommit& grant);
  void Do(const EndSave& over);
  void Do(const AbortWorkers& abort);
  bool MayLaunch();
  // Does not wait for the round's end. False if the journal is behind or broken.
  bool IsDurable();
  // The agent of the machine; null if it is not reached at the moment.
  Agent* AgentOf(const std::string& machine);
  // Tells each stream of the generation that was not told yet.
  void OrderOnce(Told& told, int64_t generation, int64_t number,
                 const std::function<proto::Order()>& order);
  void Tell(const Stream& stream, const std::string& order);
  void PassNotesOn();
  void CloseWatchersIfOver();
  absl::Status CheckMpi(const std::string& machine, const std::string& host,
                        const std::string& mpi) const;
  void TurnAwayOtherMpi();
  void TurnAwayOlder();
  void TurnAway(const std::string& machine, const absl::Status& why);
  void LookAtChecks();
  void CheckAgain();
  void GoOnWithRound();
  void BeginRound(const std::vector<std::string>& machines);
  void WatchForHangs();
  void AskRanks();
  bool HaveAll(const std::function<bool(const std::string& machine)>& has_answered) const;
  void Judge();
  std::vector<RankSeen> TakeSeen();
  void LookForSlowRank();
  void PassVerdict();
  void FenceHosts();
  void OnRanksSeen(const Agent& agent, const proto::RanksSeen& seen);
  void OnStacksTaken(const Agent& agent, const proto::StacksTaken& taken);
  void TellSpares();

  // Messages, on the driver's thread.
  absl::StatusOr<proto::SubmitJobReply> OnSubmit(const proto::SubmitJobRequest& request);
  absl::StatusOr<proto::JobStatus> OnGetJob(const proto::JobRequest& request) const;
  proto::HostHeard HeardOf(const std::string& machine, const Agent& agent) const;
  absl::Status OnWatch(int64_t id, const proto::WatchRequest& request, const WatcherPort& port);
  void OnAgentReport(int64_t id, const proto::AgentReport& report);
  void OnHeard(int64_t id, const std::vector<int64_t>& streams);
  void OnHello(int64_t id, Agent& agent, const proto::Hello& hello);
  void HearRanksOf(const std::string& machine);
  void OnDaemonWanted(const Agent& agent, const proto::DaemonWanted& wanted);
  void TellDaemon(const std::string& machine);
  void OnCheckOpened(const Agent& agent, const proto::CheckOpened& opened);
  void OnHostChecked(const Agent& agent, const proto::HostChecked& checked);
  void OnAgentFact(const Agent& agent, const proto::AgentReport& report);
  void OnSaveRequested(const Agent& agent, const proto::SaveRequested& asked);
  void HoldDoubtful(const RankEnded& fact, int64_t seen_ms);
  void JudgeDoubtful();
  bool BlameAbsent(RankEnded& fact);
  // How long the machine's agent has been silent, if that is too long.
  std::optional<int64_t> SilentMs(const std::string& machine) const;
  void NothingIsLeft(const Agent& agent, const std::string& why);
  void CloseLater(const Agent& agent, const absl::Status& why);
  void RefuseAgent(int64_t id, const absl::Status& why);
  void SendAway(const std::string& machine);
  void OnReport(int64_t id, const proto::WorkerReport& report);
  void OnRegister(int64_t id, Stream& stream, const proto::WorkerReport& report);
  void OnNote(int64_t id, const proto::WorkerReport& report);
  void OnStep(const proto::WorkerReport& report);
  void OnDetach(int64_t id);
  absl::Status CheckJob(const std::string& job_id) const;
  absl::Status CheckJob(const std::string& job_id, int64_t expected_revision) const;
  void Refuse(int64_t id, const absl::Status& why);
  void HangUp(const Stream& stream, const absl::Status& why);
  void AcknowledgeLater(int64_t id, Stream& stream);
  void AcknowledgeDue();

  bool IsOverAndGone() const;
  int64_t LeaseMs() const;
  int64_t Now() const { return options_.now_ms(); }

  // While it is behind, no report is acknowledged; steps, which are not journaled, go on.
  PatientJournal journal_;
  const DriverOptions options_;

  LeaseBook leases_;

  // Below: the driver's thread alone.
  Job job_;
  Clocks clocks_;
  StepsSoFar progress_;
  NoteBoard notes_;  // of the current generation
  std::map<int64_t, Stream> streams_;
  std::map<int, int64_t> stream_of_rank_;
  std::vector<int64_t> arrivals_;  // streams that have registered in the current generation
  Told told_train_, told_begin_, told_stop_, told_abort_, told_save_over_;
  bool notes_are_due_ = false;
  std::vector<int64_t> due_streams_;  // for an acknowledgement
  std::vector<int64_t> due_agents_;
  Outgoing outgoing_;
  std::map<int64_t, WatcherPort> watchers_;
  std::deque<proto::JobEvent> history_;  // of the current job, journaled events only
  int64_t forgotten_revision_ = 0;       // newest one that history_ has lost
  // The current job was submitted then, and came to its last phase.
  int64_t submitted_revision_ = 0;
  int64_t submitted_unix_ms_ = 0;
  int64_t ended_unix_ms_ = 0;
  std::optional<proto::JobEvent> last_step_;
  std::map<int64_t, Agent> agents_;                   // by stream
  std::map<std::string, int64_t> agent_of_machine_;   // its stream
  std::map<std::string, proto::AgentOrder> daemons_;  // mpirun's wishes, by the machine's name
  CheckRound round_;
  std::string round_secret_;
  std::string round_token_;
  int64_t look_at_checks_ms_ = 0;
  int64_t check_again_at_ms_ = 0;    // hosts that have failed
  int64_t check_again_wait_ms_ = 0;  // between the last round and that
  std::optional<DoubtfulEnd> doubtful_;
  HangWatch hangs_;
  SlowWatch slow_;
  Look look_;
  bool broken_ = false;
  int64_t postponed_since_ms_ = 0;  // a duty that cannot wait for the journal for ever; 0: none

  TaskQueue queue_;
  std::thread thread_;
};

}  // namespace weft
