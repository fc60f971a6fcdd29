#include "coordinator/service.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "coordinator/listener.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "process/tls.h"
#include "proto/agent.grpc.pb.h"
#include "proto/control.grpc.pb.h"

namespace weft {
namespace {

constexpr size_t kMaxOrders = 1024;   // waiting for one worker
constexpr size_t kMaxEvents = 20000;  // waiting for one watcher: its whole history and more
constexpr int kMaxMessageBytes = 4 << 20;
constexpr auto kShutdownGrace = std::chrono::seconds(2);

// An Outbox holds what is on its way down a stream: one write at a time, the rest queued, within a
// bound. It is shared by the driver's port and gRPC's reactor, whichever lives longer. Thread-safe.
template <typename Reactor, typename Message>
class Outbox {
 public:
  Outbox(Reactor* reactor, size_t capacity) : reactor_(reactor), capacity_(capacity) {}

  void Send(const Message& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return;
    if (queue_.size() >= capacity_) {  // too slow: cut, it comes back and resumes
      queue_.resize(writing_ ? 1 : 0);
      closing_ = true;
      status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "reads too slowly; come back and resume from the last revision seen");
    } else {
      queue_.push_back(message);
    }
    Pump();
  }

  // Queued messages still go out, unless the reason is an error.
  void Close(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return;
    closing_ = true;
    status_ = ToGrpc(status);
    Pump();
  }

  void WriteDone(bool ok) {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) {
      queue_.clear();
      closing_ = true;
    }
    Pump();
  }

  void ReactorIsGone() {
    const std::lock_guard<std::mutex> lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  void Pump() {
    if (writing_ || !reactor_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      reactor_->StartWrite(&queue_.front());
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(status_);
    }
  }

  std::mutex mutex_;  // guards all below
  Reactor* reactor_;
  const size_t capacity_;
  std::deque<Message> queue_;  // the front is being written if writing_
  bool writing_ = false;
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

// A stream of reports up and orders down, a worker's or an agent's: the three functions are the
// driver's for its kind.
template <typename Report, typename Order, auto kAttach, auto kTake, auto kDetach>
class ReportStream final : public grpc::ServerBidiReactor<Report, Order> {
 public:
  ReportStream(Driver& driver, int64_t id)
      : driver_(driver), id_(id), outbox_(std::make_shared<Box>(this, kMaxOrders)) {
    (driver_.*kAttach)(id_,
                       {.send = [box = outbox_](const Order& order) { box->Send(order); },
                        .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
    this->StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    if (ok && (driver_.*kTake)(id_, std::move(report_))) {
      report_.Clear();
      this->StartRead(&report_);
      return;
    }
    // The other side is through, or gone, or it says more than can be heard.
    (driver_.*kDetach)(id_);
    outbox_->Close(ok ? absl::UnavailableError("the coordinator is busy or closing; come back")
                      : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnDone() override {
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<ReportStream, Order>;
  Driver& driver_;
  const int64_t id_;
  const std::shared_ptr<Box> outbox_;
  Report report_;
};
using WorkerStream = ReportStream<proto::WorkerReport, proto::Order, &Driver::Attach,
                                  &Driver::Report, &Driver::Detach>;
using AgentStream = ReportStream<proto::AgentReport, proto::AgentOrder, &Driver::AttachAgent,
                                 &Driver::TakeAgentReport, &Driver::DetachAgent>;

class WatchStream final : public grpc::ServerWriteReactor<proto::JobEvent> {
 public:
  WatchStream(Driver& driver, int64_t id, const proto::WatchRequest& request)
      : driver_(driver), id_(id), outbox_(std::make_shared<Box>(this, kMaxEvents)) {
    driver_.Watch(id_, request,
                  {.send =
                       [box = outbox_](const std::vector<proto::JobEvent>& events) {
                         for (const proto::JobEvent& event : events) box->Send(event);
                       },
                   .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
  }

  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnCancel() override { outbox_->Close(absl::CancelledError("the watcher hung up")); }
  void OnDone() override {
    driver_.Unwatch(id_);
    outbox_->ReactorIsGone();
    delete this;
  }

 private:
  using Box = Outbox<WatchStream, proto::JobEvent>;
  Driver& driver_;
  const int64_t id_;
  const std::shared_ptr<Box> outbox_;
};

class WorkerLinkDoor final : public proto::WorkerLink::CallbackService {
 public:
  WorkerLinkDoor(Driver& driver, std::atomic<int64_t>& ids) : driver_(driver), ids_(ids) {}
  grpc::ServerBidiReactor<proto::WorkerReport, proto::Order>* Attach(
      grpc::CallbackServerContext*) override {
    return new WorkerStream(driver_, ++ids_);
  }

 private:
  Driver& driver_;
  std::atomic<int64_t>& ids_;
};

class AgentLinkDoor final : public proto::AgentLink::CallbackService {
 public:
  AgentLinkDoor(Driver& driver, std::atomic<int64_t>& ids) : driver_(driver), ids_(ids) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext*) override {
    return new AgentStream(driver_, ++ids_);
  }

 private:
  Driver& driver_;
  std::atomic<int64_t>& ids_;
};

class RefusedStream final : public grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  explicit RefusedStream(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

// Agents of other hosts come this way: a certificate may have been revoked since its connection was
// made.
class RemoteAgentDoor final : public proto::AgentLink::CallbackService {
 public:
  RemoteAgentDoor(AgentLinkDoor& agents, std::string revoked_file)
      : agents_(agents), revoked_file_(std::move(revoked_file)) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override {
    const absl::Status welcome = CheckPeerIsWelcome(*context, revoked_file_);
    if (!welcome.ok()) return new RefusedStream(welcome);
    return agents_.Attach(context);
  }

 private:
  AgentLinkDoor& agents_;
  const std::string revoked_file_;
};

class ControlDoor final : public proto::Control::CallbackService {
 public:
  ControlDoor(std::string version, Driver& driver, std::atomic<int64_t>& ids)
      : version_(std::move(version)), driver_(driver), ids_(ids) {}

  grpc::ServerUnaryReactor* Version(grpc::CallbackServerContext* context,
                                    const google::protobuf::Empty*,
                                    proto::VersionReply* reply) override {
    reply->set_version(version_);
    reply->set_pid(getpid());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const proto::SubmitJobRequest* request,
                                      proto::SubmitJobReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_.Submit(*request, [reactor, reply](const absl::StatusOr<proto::SubmitJobReply>& answer) {
      if (answer.ok()) *reply = *answer;
      reactor->Finish(ToGrpc(answer.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const proto::JobRequest* request,
                                   proto::JobStatus* status) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_.GetJob(*request, [reactor, status](const absl::StatusOr<proto::JobStatus>& answer) {
      if (answer.ok()) *status = *answer;
      reactor->Finish(ToGrpc(answer.status()));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<proto::JobEvent>* Watch(grpc::CallbackServerContext*,
                                                   const proto::WatchRequest* request) override {
    return new WatchStream(driver_, ++ids_, *request);
  }

  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const proto::StopJobRequest* request,
                                    google::protobuf::Empty*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    driver_.StopJob(*request,
                    [reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status)); });
    return reactor;
  }

 private:
  const std::string version_;
  Driver& driver_;
  std::atomic<int64_t>& ids_;
};

}  // namespace

struct Service::Door {
  Door(const std::string& version, Driver& served)
      : driver(served), workers(served, ids), agents(served, ids), control(version, served, ids) {}

  Driver& driver;
  std::atomic<int64_t> ids = 0;
  WorkerLinkDoor workers;
  AgentLinkDoor agents;
  ControlDoor control;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<RemoteAgentDoor> remote_agents;
  std::unique_ptr<TlsDoor> network;
};

absl::StatusOr<std::unique_ptr<Service>> Service::Start(
    const std::string& socket_path, const std::string& version, Driver& driver,
    const std::optional<TlsDoorOptions>& network) {
  auto door = std::make_unique<Door>(version, driver);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&door->workers);
  builder.RegisterService(&door->agents);
  builder.RegisterService(&door->control);
  door->server = builder.BuildAndStart();
  if (!door->server) return absl::InternalError("gRPC does not start a server");
  // Connections are accepted here rather than by gRPC, which would not show whose they are.
  ASSIGN_OR_RETURN(door->listener,
                   Listener::Start(socket_path, [server = door->server.get()](int fd) {
                     grpc::AddInsecureChannelFromFd(server, fd);
                   }));
  if (network) {
    door->remote_agents = std::make_unique<RemoteAgentDoor>(door->agents, network->revoked_file);
    ASSIGN_OR_RETURN(door->network, TlsDoor::Open(*network, door->remote_agents.get()));
  }
  return std::unique_ptr<Service>(new Service(std::move(door)));
}

Service::Service(std::unique_ptr<Door> door) : door_(std::move(door)) {}

int Service::network_port() const {
  return door_->network == nullptr ? 0 : door_->network->port();
}

Service::~Service() {
  door_->listener.reset();
  door_->driver.Close();
  door_->network.reset();
  door_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  door_->server->Wait();
}

}  // namespace weft
