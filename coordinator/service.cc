#include "coordinator/service.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/messages.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/listener.h"
#include "process/log.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "process/tls.h"
#include "proto/agent.grpc.pb.h"
#include "proto/control.grpc.pb.h"

namespace weft {
namespace {

constexpr size_t kMaxOrders = 20000;  // waiting for one agent and its ranks
constexpr size_t kMaxEvents = 20000;  // waiting for one watcher: its whole history and more
constexpr auto kShutdownGrace = std::chrono::seconds(2);

// The stream of an agent, and in it those of its ranks: each of them is a worker's stream to the
// driver, which does not know how they came. Leases are granted here, on the thread that hears the
// heartbeat.
class AgentStream final : public grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  // `peer`: the name in its certificate; none on a unix socket. `welcome` says whether that
  // certificate still counts.
  AgentStream(Driver& driver, std::atomic<int64_t>& ids, std::optional<std::string> peer,
              std::function<absl::Status()> welcome)
      : driver_(driver),
        ids_(ids),
        id_(++ids),
        peer_(std::move(peer)),
        welcome_(std::move(welcome)),
        outbox_(std::make_shared<Box>(this, kMaxOrders)) {
    driver_.AttachAgent(
        id_, {.send = [box = outbox_](const proto::AgentOrder& order) { box->Send(order); },
              .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
    StartRead(&report_);
  }

  void OnReadDone(bool ok) override {
    if (ok && Take()) {
      report_.Clear();
      StartRead(&report_);
      return;
    }
    // The other side is through, or gone, or it says more than can be heard.
    for (const int64_t id : AllRankIds()) driver_.Detach(id);
    driver_.leases().Dismiss(id_);
    driver_.DetachAgent(id_);
    outbox_->Close(ok ? absl::UnavailableError("the coordinator is busy or closing; come back")
                      : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnDone() override {
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<AgentStream, proto::AgentOrder>;

  // False if there is no room for what was said.
  bool Take() {
    switch (report_.report_case()) {
      case proto::AgentReport::kHeartbeat:
        GrantLease();
        return driver_.Heard(id_, IdsOf(report_.heartbeat()));
      case proto::AgentReport::kFromRank:
        TakeFromRank(report_.from_rank());
        return true;
      case proto::AgentReport::kHello: {
        const absl::Status is_it = CheckPeerIs(peer_, report_.hello().host());
        if (is_it.ok()) return driver_.TakeAgentReport(id_, std::move(report_));
        outbox_->Close(is_it);
        return true;
      }
      case proto::AgentReport::kRankHungUp:
        Forget(report_.rank_hung_up().stream());
        return true;
      default:
        return driver_.TakeAgentReport(id_, std::move(report_));
    }
  }

  // A stream may be open for longer than its certificate is good for: with its lease it ends.
  void GrantLease() {
    const absl::Status welcome = welcome_();
    if (!welcome.ok()) {
      LogWarning(absl::StrCat("an agent gets no further lease: ", welcome.message()));
      driver_.leases().Dismiss(id_);
      return outbox_->Close(welcome);
    }
    const std::optional<int64_t> lease_ms = driver_.leases().Grant(id_, BootTimeMs());
    if (!lease_ms) return;  // it has not said hello, or is turned away
    outbox_->Send(LeaseOrder(report_.heartbeat().sent_boot_ms(), *lease_ms));
  }

  std::vector<int64_t> IdsOf(const proto::Heartbeat& heartbeat) const {
    std::vector<int64_t> ids;
    for (const int64_t stream : heartbeat.heard()) {
      if (const int64_t id = FindRankId(stream); id != 0) ids.push_back(id);
    }
    return ids;
  }

  void TakeFromRank(const proto::FromRank& message) {
    int64_t id = FindRankId(message.stream());
    if (id == 0) {
      id = ++ids_;
      KeepRankId(message.stream(), id);
      driver_.Attach(id, {.agent = id_, .stream = message.stream()});
    }
    proto::WorkerReport report;
    if (!report.ParseFromString(message.report())) {
      Cut(message.stream(), absl::InvalidArgumentError("this is no report of a worker"));
    } else if (!driver_.Report(id, std::move(report))) {
      Cut(message.stream(),
          absl::UnavailableError("the coordinator is busy or closing; come back"));
    }
  }

  // The driver hears no more of it, whatever comes before the agent says that it has hung up.
  void Cut(int64_t stream, const absl::Status& why) {
    outbox_->Send(HangUpOrder(stream, why));
    driver_.Detach(FindRankId(stream));
  }

  void Forget(int64_t stream) {
    const int64_t id = FindRankId(stream);
    if (id == 0) return;
    driver_.Detach(id);
    DropRankId(stream);
  }

  // The driver's ids of the ranks' streams; 0: it has none.
  int64_t FindRankId(int64_t stream) const {
    const auto found = ranks_.find(stream);
    return found == ranks_.end() ? 0 : found->second;
  }
  std::vector<int64_t> AllRankIds() const {
    std::vector<int64_t> ids;
    for (const auto& [stream, id] : ranks_) ids.push_back(id);
    return ids;
  }
  void KeepRankId(int64_t stream, int64_t id) { ranks_[stream] = id; }
  void DropRankId(int64_t stream) { ranks_.erase(stream); }

  Driver& driver_;
  std::atomic<int64_t>& ids_;
  const int64_t id_;
  const std::optional<std::string> peer_;
  const std::function<absl::Status()> welcome_;
  const std::shared_ptr<Box> outbox_;
  proto::AgentReport report_;
  std::map<int64_t, int64_t> ranks_;  // the driver's id of each; of OnReadDone alone
};

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

class AgentLinkDoor final : public proto::AgentLink::CallbackService {
 public:
  AgentLinkDoor(Driver& driver, std::atomic<int64_t>& ids) : driver_(driver), ids_(ids) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext*) override {
    return new AgentStream(driver_, ids_, std::nullopt, [] { return absl::OkStatus(); });
  }
  // For one that came over the network.
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* AttachRemote(
      const std::string& peer, std::function<absl::Status()> welcome) {
    return new AgentStream(driver_, ids_, peer, std::move(welcome));
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

// Agents of other hosts come this way: a certificate may have ended or been revoked since its
// connection was made, or come to that later.
class RemoteAgentDoor final : public proto::AgentLink::CallbackService {
 public:
  RemoteAgentDoor(AgentLinkDoor& agents, std::string revoked_file)
      : agents_(agents), revoked_file_(std::move(revoked_file)) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override {
    const auto shown = PeerCertificates(*context);
    if (!shown.ok()) return new RefusedStream(shown.status());
    const auto check = [certificates = *shown, file = revoked_file_] {
      return CheckStillWelcome(certificates, file);
    };
    const absl::Status welcome = check();
    if (!welcome.ok()) return new RefusedStream(welcome);
    return agents_.AttachRemote(PeerName(*context).value_or(""), check);
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
      : driver(served), agents(served, ids), control(version, served, ids) {}

  Driver& driver;
  std::atomic<int64_t> ids = 0;
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
