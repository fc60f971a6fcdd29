// SimulatedAgent: a job's agent and the ranks behind it, without processes: over a connection of
// its own it says what `weft agent` and its ranks would, at once. Many of them live in one bench.
#pragma once
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plan/spec/job_spec.h"
#include "process/tls_bundle.h"
#include "proto/agent.grpc.pb.h"

namespace weft {

// A count of something that has come; others wait for it. Safe from any thread.
class Counter final {
 public:
  void Add(int64_t count = 1);
  // False after 100 s, or once nothing more will come.
  bool WaitFor(int64_t count);
  // Nobody waits any more.
  void End();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t count_ = 0;
  bool over_ = false;
};

// AgentCounts is what all agents of a bench have heard.
struct AgentCounts {
  Counter welcomed;  // agents
  Counter told;      // ranks that know what to train
  Counter begun;     // ranks
  std::atomic<int64_t> leases = 0;
  std::atomic<int64_t> dials = 0;        // that checks of hosts ask for
  std::atomic<int64_t> order_bytes = 0;  // of orders about such checks
  std::atomic<bool> refused = false;     // an agent was
  std::atomic<bool> is_over = false;
};

struct SimulatedAgentOptions {
  std::string host;  // its machine is "machine-<host>"
  int ranks = 1;
  std::string job_id = {};  // as Hello's; empty: the only one
  int64_t allocation = 0;
};

class SimulatedAgent final : public grpc::ClientBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  // `counts` outlives it.
  SimulatedAgent(SimulatedAgentOptions options, AgentCounts& counts)
      : options_(std::move(options)), counts_(counts) {}
  ~SimulatedAgent() override;

  absl::Status Dial(const std::string& target, const BundleSource& bundle = {});
  // Asks for its lease, its ranks named if they train.
  void Beat();
  // Rank 0 says that the next step is done, if it is here and trains. Its number of tokens is
  // UnixTimeUs(): so a watcher can tell how late it hears of it.
  void SayStep();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Take();
  void Open(const proto::CheckHost& order);
  void SayChecked(int64_t round);
  void Launch(const proto::Launch& launch);
  void SayReady(int64_t stream);
  void SayFrom(int64_t stream, proto::WorkerReport report);
  void Say(proto::AgentReport report);

  const SimulatedAgentOptions options_;
  AgentCounts& counts_;
  grpc::ClientContext context_;
  std::unique_ptr<proto::AgentLink::Stub> stub_;
  proto::AgentOrder order_;  // of the reading thread
  int64_t sequence_ = 0;     // of the reading thread
  int64_t generation_ = 0;   // set before trains_ is
  std::vector<int> mine_;    // set before trains_ is
  int64_t step_ = 0;         // of the thread that calls SayStep
  std::atomic<bool> trains_ = false;
  std::atomic<bool> begun_ = false;
  std::mutex mutex_;  // guards the two below
  std::deque<proto::AgentReport> queue_;
  bool done_ = false;
  bool dialed_ = false;
  std::condition_variable changed_;
};

int64_t UnixTimeUs();

// A small job on so many hosts with so many ranks each, dp alone, without preflight and with a
// lease of a minute: a machine that runs a bench may be busy.
JobSpec SmallJob(int hosts, int ranks);
inline constexpr int kSmallJobLeaseS = 60;

}  // namespace weft
