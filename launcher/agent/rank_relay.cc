#include "launcher/agent/rank_relay.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "plan/errors.h"
#include "process/listener.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "proto/agent.grpc.pb.h"

namespace weft {
namespace {

constexpr size_t kMaxOrders = 1024;  // waiting for one rank
constexpr auto kShutdownGrace = std::chrono::seconds(1);

absl::Status NoCoordinator() {
  return absl::UnavailableError("the agent has no coordinator at the moment; come back");
}

bool IsHeartbeat(const proto::WorkerReport& report) {
  return report.report_case() == proto::WorkerReport::REPORT_NOT_SET;
}

class RankStream;
using Box = Outbox<RankStream, proto::Order>;

// The ranks that are connected, by stream.
class Ranks {
 public:
  Ranks(std::function<int64_t()> now_ms, RankRelay::SendUp send)
      : now_ms_(std::move(now_ms)), send_(std::move(send)) {}

  // Returns the new stream's number; none if there is no coordinator.
  int64_t Come(const std::shared_ptr<Box>& box) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return 0;
    boxes_[++last_] = box;
    // One that is over would end the rank at once; the next is on its way.
    if (lease_.stop_at_boot_ms() > now_ms_()) SendLease(*box);
    return last_;
  }

  // False: the stream has to end, with NoCoordinator.
  bool Said(int64_t stream, const proto::WorkerReport& report) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (boxes_.count(stream) == 0) return false;
    heard_.insert(stream);
    if (IsHeartbeat(report)) return true;
    proto::AgentReport envelope;
    envelope.mutable_from_rank()->set_stream(stream);
    report.SerializeToString(envelope.mutable_from_rank()->mutable_report());
    return send_(envelope);
  }

  void Go(int64_t stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = boxes_.find(stream);
    if (found != boxes_.end()) Forget(found);
  }

  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
  }

  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
    for (const auto& [stream, box] : boxes_) box->Close(NoCoordinator());
    boxes_.clear();
    heard_.clear();
  }

  void Take(const proto::AgentOrder& order) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (order.has_hang_up()) {
      const auto found = boxes_.find(order.hang_up().stream());
      if (found == boxes_.end()) return;
      found->second->Close(absl::Status(static_cast<absl::StatusCode>(order.hang_up().code()),
                                        order.hang_up().message()));
      return Forget(found);
    }
    proto::Order message;
    if (!message.ParseFromString(order.to_ranks().order())) return;
    for (const int64_t stream : order.to_ranks().streams()) {
      const auto found = boxes_.find(stream);
      if (found != boxes_.end()) found->second->Send(message);
    }
  }

  void SetLease(const proto::Lease& lease) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lease_ = lease;
    for (const auto& [stream, box] : boxes_) SendLease(*box);
  }

  std::vector<int64_t> TakeHeard() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int64_t> heard(heard_.begin(), heard_.end());
    heard_.clear();
    return heard;
  }

 private:
  // REQUIRES: mutex_ held. These are the stream's last words: nothing comes after them.
  void Forget(std::map<int64_t, std::shared_ptr<Box>>::iterator rank) {
    proto::AgentReport report;
    report.mutable_rank_hung_up()->set_stream(rank->first);
    heard_.erase(rank->first);
    boxes_.erase(rank);
    send_(report);  // without room for it the coordinator notices the silence
  }

  void SendLease(Box& box) const {
    proto::Order order;
    *order.mutable_lease() = lease_;
    box.Send(order);
  }

  const std::function<int64_t()> now_ms_;
  const RankRelay::SendUp send_;
  std::mutex mutex_;  // guards all below, and is held while send_ is called
  bool open_ = false;
  int64_t last_ = 0;
  std::map<int64_t, std::shared_ptr<Box>> boxes_;
  std::set<int64_t> heard_;
  proto::Lease lease_;
};

class RankStream final : public grpc::ServerBidiReactor<proto::WorkerReport, proto::Order> {
 public:
  explicit RankStream(Ranks& ranks)
      : ranks_(ranks), box_(std::make_shared<Box>(this, kMaxOrders)), stream_(ranks.Come(box_)) {
    if (stream_ == 0) {
      box_->Close(NoCoordinator());
    } else {
      StartRead(&report_);
    }
  }

  void OnReadDone(bool ok) override {
    if (ok && ranks_.Said(stream_, report_)) {
      report_.Clear();
      StartRead(&report_);
      return;
    }
    ranks_.Go(stream_);
    box_->Close(ok ? NoCoordinator() : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override { box_->WriteDone(ok); }
  void OnDone() override {
    box_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  Ranks& ranks_;
  const std::shared_ptr<Box> box_;
  const int64_t stream_;
  proto::WorkerReport report_;
};

class WorkerLinkDoor final : public proto::WorkerLink::CallbackService {
 public:
  explicit WorkerLinkDoor(Ranks& ranks) : ranks_(ranks) {}
  grpc::ServerBidiReactor<proto::WorkerReport, proto::Order>* Attach(
      grpc::CallbackServerContext*) override {
    return new RankStream(ranks_);
  }

 private:
  Ranks& ranks_;
};

}  // namespace

struct RankRelay::Door {
  Door(std::function<int64_t()> now_ms, SendUp send)
      : ranks(std::move(now_ms), std::move(send)), service(ranks) {}

  Ranks ranks;
  WorkerLinkDoor service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
};

absl::StatusOr<std::unique_ptr<RankRelay>> RankRelay::Start(const std::string& socket_path,
                                                            std::function<int64_t()> now_ms,
                                                            SendUp send,
                                                            std::optional<uid_t> ranks_user) {
  auto door = std::make_unique<Door>(std::move(now_ms), std::move(send));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&door->service);
  door->server = builder.BuildAndStart();
  if (!door->server) return absl::InternalError("gRPC does not start a server");
  std::function<bool(uid_t)> admits;
  if (ranks_user) admits = [ranks_user](uid_t user) { return user == *ranks_user; };
  const auto take = [server = door->server.get()](int fd, uid_t) {
    grpc::AddInsecureChannelFromFd(server, fd);
  };
  ASSIGN_OR_RETURN(door->listener, Listener::Start(socket_path, take, std::move(admits)));
  return std::unique_ptr<RankRelay>(new RankRelay(std::move(door)));
}

RankRelay::RankRelay(std::unique_ptr<Door> door) : door_(std::move(door)) {}

RankRelay::~RankRelay() {
  door_->listener.reset();
  door_->ranks.Close();
  door_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  door_->server->Wait();
}

void RankRelay::Open() {
  door_->ranks.Open();
}
void RankRelay::Close() {
  door_->ranks.Close();
}
void RankRelay::TakeOrder(const proto::AgentOrder& order) {
  door_->ranks.Take(order);
}
void RankRelay::SetLease(const proto::Lease& lease) {
  door_->ranks.SetLease(lease);
}
std::vector<int64_t> RankRelay::TakeHeard() {
  return door_->ranks.TakeHeard();
}

}  // namespace weft
