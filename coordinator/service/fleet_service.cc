#include "coordinator/service/fleet_service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <pwd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/agent_door.h"
#include "coordinator/service/control_door.h"
#include "coordinator/service/offer_door.h"
#include "plan/errors.h"
#include "process/listener.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr auto kShutdownGrace = std::chrono::seconds(2);

// "ann"; a user without a name is called by the number.
std::string UserName(uid_t uid) {
  passwd entry = {};
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) != 0 || found == nullptr) {
    return absl::StrCat(uid);
  }
  return found->pw_name;
}

// The listener lets nobody in but this process's own user.
CallerFinder OwnUser() {
  const Caller own{UserName(geteuid()), static_cast<int64_t>(geteuid()), Role::kOperator};
  return [own](const grpc::CallbackServerContext&) { return own; };
}

}  // namespace

struct FleetService::Doors {
  Doors(const std::string& version, FleetDriver& served)
      : fleet(served),
        agents([&served](const proto::Hello& hello) { return served.FindDriver(hello); }, ids),
        offers(served, ids, OwnUser()),
        jobs(version, served, ids, OwnUser()) {}

  FleetDriver& fleet;
  std::atomic<int64_t> ids = 0;
  AgentDoor agents;
  OfferDoor offers;
  JobsDoor jobs;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
};

absl::StatusOr<std::unique_ptr<FleetService>> FleetService::Start(const std::string& socket_path,
                                                                  const std::string& version,
                                                                  FleetDriver& fleet) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto doors = std::make_unique<Doors>(version, fleet);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&doors->agents);
  builder.RegisterService(&doors->offers);
  builder.RegisterService(&doors->jobs);
  doors->server = builder.BuildAndStart();
  if (!doors->server) return absl::InternalError("gRPC does not start a server");
  ASSIGN_OR_RETURN(doors->listener,
                   Listener::Start(socket_path, [server = doors->server.get()](int fd) {
                     grpc::AddInsecureChannelFromFd(server, fd);
                   }));
  return std::unique_ptr<FleetService>(new FleetService(std::move(doors)));
}

FleetService::FleetService(std::unique_ptr<Doors> doors) : doors_(std::move(doors)) {}

FleetService::~FleetService() {
  doors_->listener.reset();
  doors_->fleet.Close();
  doors_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  doors_->server->Wait();
}

}  // namespace weft
