#include "coordinator/service/run_service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "coordinator/agent_door.h"
#include "coordinator/service/run_door.h"
#include "plan/errors.h"
#include "process/listener.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr auto kShutdownGrace = std::chrono::seconds(2);

}  // namespace

struct RunService::Door {
  Door(const std::string& version, Driver& served)
      : driver(served),
        find([&served](const proto::Hello&, const AgentPeer&) {
          const auto outlives_the_service = [](Driver*) {};
          return AgentPlace{std::shared_ptr<Driver>(&served, outlives_the_service)};
        }),
        agents(find, ids, geteuid()),
        people(version, served, ids) {}

  Driver& driver;
  // The listener and the run's own certificates let in its user alone.
  const PlaceFinder find;
  std::atomic<int64_t> ids = 0;
  AgentDoor agents;
  RunDoor people;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<RemoteAgentDoor> remote_agents;
  std::unique_ptr<TlsDoor> network;
};

absl::StatusOr<std::unique_ptr<RunService>> RunService::Start(
    const std::string& socket_path, const std::string& version, Driver& driver,
    const std::optional<TlsDoorOptions>& network) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto door = std::make_unique<Door>(version, driver);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&door->agents);
  builder.RegisterService(&door->people);
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
  return std::unique_ptr<RunService>(new RunService(std::move(door)));
}

RunService::RunService(std::unique_ptr<Door> door) : door_(std::move(door)) {}

int RunService::network_port() const {
  return door_->network == nullptr ? 0 : door_->network->port();
}

RunService::~RunService() {
  door_->listener.reset();
  door_->driver.Close();
  door_->network.reset();
  door_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  door_->server->Wait();
}

}  // namespace weft
