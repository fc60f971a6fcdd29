#include "coordinator/service.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "coordinator/agent_door.h"
#include "plan/errors.h"
#include "process/listener.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "proto/control.grpc.pb.h"

namespace weft {
namespace {

constexpr size_t kMaxEvents = 20000;  // waiting for one watcher: its whole history and more
constexpr auto kShutdownGrace = std::chrono::seconds(2);

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
      : driver(served),
        find([&served](const proto::Hello&) {
          return std::shared_ptr<Driver>(&served, [](Driver*) {});  // it outlives the service
        }),
        agents(find, ids),
        control(version, served, ids) {}

  Driver& driver;
  const DriverFinder find;
  std::atomic<int64_t> ids = 0;
  AgentDoor agents;
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
                   Listener::Start(socket_path, [server = door->server.get()](int fd, uid_t) {
                     grpc::AddInsecureChannelFromFd(server, fd);
                   }));
  if (network) {
    door->remote_agents =
        std::make_unique<RemoteAgentDoor>(door->find, door->ids, network->revoked_file);
    ASSIGN_OR_RETURN(door->network, TlsDoor::Open(*network, {door->remote_agents.get()}));
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
