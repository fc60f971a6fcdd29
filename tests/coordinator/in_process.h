// A coordinator in this process behind a real unix socket, with its callers: for tests of the wire.
// Every wait in here is bounded.
#pragma once
#include <grpcpp/client_context.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "coordinator/service/run_service.h"
#include "launcher/agent/agent_link.h"
#include "process/clock.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {

// For what is expected to come at once: it only ends a test that has failed.
inline constexpr int64_t kPatienceMs = 60000;

// A clock of a coordinator, its hosts and their ranks that stands until the test lets time pass: no
// lease ends, and nobody falls silent, because a machine is busy. Thread-safe.
class StandingClock {
 public:
  int64_t now_ms() const { return now_ms_; }
  void Pass(int64_t ms) { now_ms_ += ms; }

 private:
  std::atomic<int64_t> now_ms_ = BootTimeMs();
};

// A folder with a journal and a socket; Start may be called again after Stop.
class InProcessCoordinator {
 public:
  // `clock`: of its own and its hosts, and borrowed; null: the kernel's.
  explicit InProcessCoordinator(std::optional<int64_t> lease_ms = std::nullopt,
                                const StandingClock* clock = nullptr);
  // Before Start: reports that wait may take so much.
  void LimitQueue(int64_t bytes) { max_queued_bytes_ = bytes; }
  // Before Submit: jobs have a preflight. Otherwise tests would have to answer for each host.
  void CheckHosts() { checks_hosts_ = true; }
  void CheckFailedHostsAgainAfter(int64_t ms) { check_again_ms_ = ms; }
  ~InProcessCoordinator();

  absl::Status Start();
  void Stop();  // orderly, as on SIGTERM

  std::string socket() const { return folder_ + "/weftd.sock"; }
  std::string target() const { return "unix:" + socket(); }
  std::string journal() const { return folder_ + "/journal.db"; }
  v1::Control::Stub& control() { return *control_; }
  std::function<int64_t()> clock() const;
  // The driver's thread waits until then, as it does for a disk that hangs.
  void HoldDriver(const std::shared_future<void>& until);

  // Calls, each within kPatienceMs.
  absl::StatusOr<std::string> Submit(const std::string& request_id, const JobSpec& job,
                                     std::optional<Layout> layout);
  absl::StatusOr<v1::Job> Status();
  absl::Status StopJob(bool now);
  absl::Status Checkpoint();
  // Asks until the job is in `phase`; false after kPatienceMs.
  bool WaitForPhase(const std::string& phase);
  // All events after `revision` until the job is over or `count` have come.
  std::vector<v1::Event> Watch(int64_t after_revision, size_t count, absl::Status* status);

 private:
  const std::optional<int64_t> lease_ms_;
  const StandingClock* const clock_;
  int64_t max_queued_bytes_ = DriverOptions().max_queued_bytes;
  bool checks_hosts_ = false;
  int64_t check_again_ms_ = DriverOptions().check_again_ms;
  std::string folder_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<RunService> service_;
  std::unique_ptr<v1::Control::Stub> control_;
};

// An agent that says exactly what a test tells it to, after its Hello; orders come in order.
class RawAgent {
 public:
  struct Self {
    std::string machine = "machine-1";
    int64_t generation = 0;  // as Hello says
    std::string version = Version();
    int wire_version = kWireVersion;
    std::string mpi = {};
  };
  RawAgent(const std::string& target, const Self& self);
  explicit RawAgent(const std::string& target) : RawAgent(target, Self()) {}
  ~RawAgent();  // cuts the stream

  void Say(proto::AgentReport report);
  void RankEnded(int64_t generation, int rank, int signal);
  void GroupEnded(int64_t generation, bool clean);
  // The next order that is no acknowledgement nor welcome; DeadlineExceeded after `timeout_ms`.
  absl::StatusOr<proto::AgentOrder> NextOrder(int64_t timeout_ms = kPatienceMs);
  // How many streams of ranks were told to train; waits until there are `streams`, at most
  // kPatienceMs.
  int WaitForTrains(int streams);
  // The highest sequence that was acknowledged.
  int64_t acknowledged();
  bool is_welcome();
  // The end of the stream that the coordinator decides on; DeadlineExceeded after kPatienceMs.
  absl::Status WaitForEnd();

 private:
  void Read();

  grpc::ClientContext context_;
  std::unique_ptr<proto::AgentLink::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::AgentReport, proto::AgentOrder>> stream_;
  int64_t sequence_ = 0;
  std::mutex mutex_;  // guards the five below
  std::deque<proto::AgentOrder> orders_;
  int64_t acknowledged_ = 0;
  bool is_welcome_ = false;
  int trains_ = 0;
  bool ended_ = false;
  std::condition_variable changed_;
  std::thread reader_;
};

// The agent of a host, with its real stream and the real relay that ranks dial; what becomes of
// orders and processes is the test's to say. It keeps the host's lease alive.
class InProcessHost {
 public:
  explicit InProcessHost(const InProcessCoordinator& coordinator,
                         const std::string& machine = "machine-1",
                         const std::string& name = "here");
  ~InProcessHost();  // cuts the stream, and those of its ranks

  std::string rank_target() const { return "unix:" + folder_ + "/ranks.sock"; }
  void RankEnded(int64_t generation, int rank, int signal);
  void GroupEnded(int64_t generation, bool clean);
  void AskToSave();
  void WantDaemon(int64_t generation, const std::string& host,
                  const std::vector<std::string>& args);
  // The next order for the agent itself; DeadlineExceeded after `timeout_ms`.
  absl::StatusOr<proto::AgentOrder> NextOrder(int64_t timeout_ms = kPatienceMs);
  // Whether an order has come, which stays; waits for one for `timeout_ms`.
  bool AwaitOrder(int64_t timeout_ms);
  // Why the coordinator wants no more of it; DeadlineExceeded after kPatienceMs.
  absl::Status WaitForRefusal();
  // Until the coordinator, a new one perhaps, has granted another lease; false after kPatienceMs.
  bool WaitForLease() const;
  // Until it has a lease to `end_ms` or later; false after kPatienceMs.
  bool WaitForLeaseTo(int64_t end_ms) const;
  int64_t lease_end_ms() const { return link_->lease_end_ms(); }
  void Say(proto::AgentReport report);

 private:
  std::string folder_;
  int wake_ = -1;
  std::unique_ptr<AgentLink> link_;
  int64_t sequence_ = 0;
  std::deque<proto::AgentOrder> orders_;
};

// A worker that says exactly what a test tells it to, and nothing by itself.
class RawWorker {
 public:
  // `target`: of its host's agent.
  RawWorker(const std::string& target, int64_t generation, int rank, int world_size,
            const std::string& version);
  ~RawWorker();  // cuts the stream

  // From any thread.
  void Say(proto::WorkerReport report);
  void Heartbeat() { Say({}); }
  // Returns once the coordinator has heard this rank now: by a note to itself, which comes back.
  // False if it does not within kPatienceMs. Until the rank is ready.
  bool IsHeard();
  // Blocks until an order that `wanted` accepts has come; none after kPatienceMs, or if the stream
  // has ended.
  std::optional<proto::Order> WaitFor(const std::function<bool(const proto::Order&)>& wanted);
  // The end of the stream that the coordinator decides on; DeadlineExceeded after kPatienceMs.
  absl::Status WaitForEnd();

 private:
  void Read();

  const int64_t generation_;
  const int rank_;
  int words_ = 0;  // of IsHeard
  grpc::ClientContext context_;
  std::unique_ptr<proto::WorkerLink::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::WorkerReport, proto::Order>> stream_;
  std::mutex write_mutex_;  // one write at a time
  std::mutex mutex_;        // guards the two below
  std::vector<proto::Order> orders_;
  bool ended_ = false;
  std::condition_variable changed_;
  std::thread reader_;
};

// Lets `ms` pass, in steps below half a lease in each of which the hosts get another lease and the
// ranks are heard: whoever is not among them falls silent. Each host asks for its next lease after
// an eighth of `lease_ms`, by its clock and the kernel's, so a step takes about that. False if
// somebody is not answered.
bool PassTime(StandingClock& clock, int64_t ms, int64_t lease_ms,
              const std::vector<const InProcessHost*>& hosts,
              const std::vector<RawWorker*>& ranks = {});

}  // namespace weft
