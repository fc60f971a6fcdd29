#include "coordinator/service/fleet_service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/agent_door.h"
#include "coordinator/open_connections.h"
#include "coordinator/service/control_door.h"
#include "coordinator/service/offer_door.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/listener.h"
#include "process/log.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr auto kShutdownGrace = std::chrono::seconds(2);

PlaceFinder PlacesOf(FleetDriver& fleet) {
  return [&fleet](const proto::Hello& hello, const AgentPeer& peer) {
    return fleet.FindPlace(hello, peer);
  };
}

// Each user of the socket has a server of its own, so that a call is its user's whatever becomes of
// the connection. It knows what the role may use.
class UserServer {
 public:
  UserServer(const FleetServiceOptions& options, FleetDriver& fleet, std::atomic<int64_t>& ids,
             CallLimits& limits, const Caller& caller)
      : agents_(PlacesOf(fleet), ids, caller.uid),
        offers_(fleet, ids, Is(caller), ""),
        jobs_(options.version, fleet, ids, limits, options.now_ms, Is(caller)) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    if (MayOffer(caller)) builder.RegisterService(&agents_);
    if (MayOffer(caller)) builder.RegisterService(&offers_);
    if (caller.role != Role::kAgent) builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
  }
  ~UserServer() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }
  UserServer(const UserServer&) = delete;
  UserServer& operator=(const UserServer&) = delete;

  void Take(int connection) {
    if (server_ != nullptr) {
      grpc::AddInsecureChannelFromFd(server_.get(), connection);
    } else {
      close(connection);
    }
  }

 private:
  static CallerFinder Is(const Caller& caller) {
    return [caller](const grpc::ServerContextBase&) { return caller; };
  }

  AgentDoor agents_;
  OfferDoor offers_;
  JobsDoor jobs_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

struct FleetService::Doors {
  Doors(FleetServiceOptions given, FleetDriver& served)
      : options(std::move(given)),
        fleet(served),
        limits(options.limits),
        connections(options.limits.connections) {}

  bool Admits(int64_t uid) const { return SocketCaller(uid, options.roles).has_value(); }
  // Called on the listener's thread alone.
  void Take(int connection, int64_t uid) {
    const std::optional<Caller> caller = SocketCaller(uid, options.roles);
    if (!caller) {
      close(connection);
      return;
    }
    if (!connections.Take(CallerText(*caller), connection, BootTimeMs())) return;
    std::unique_ptr<UserServer>& server = users[uid];
    if (server == nullptr)
      server = std::make_unique<UserServer>(options, fleet, ids, limits, *caller);
    server->Take(connection);
  }
  absl::Status OpenNetwork() {
    TlsDoorOptions network = *options.network;
    network.connections = options.limits.connections;
    const CallerFinder find = TlsCallers(network.revoked_file);
    agents = std::make_unique<RemoteAgentDoor>(PlacesOf(fleet), ids, network.revoked_file);
    offers = std::make_unique<OfferDoor>(fleet, ids, find, network.revoked_file);
    jobs = std::make_unique<JobsDoor>(options.version, fleet, ids, limits, options.now_ms, find);
    ASSIGN_OR_RETURN(door, TlsDoor::Open(network, {agents.get(), offers.get(), jobs.get()}));
    return absl::OkStatus();
  }

  const FleetServiceOptions options;
  FleetDriver& fleet;
  std::atomic<int64_t> ids = 0;
  CallLimits limits;
  OpenConnections connections;                           // of the listener's thread
  std::map<int64_t, std::unique_ptr<UserServer>> users;  // by uid
  std::unique_ptr<RemoteAgentDoor> agents;
  std::unique_ptr<OfferDoor> offers;
  std::unique_ptr<JobsDoor> jobs;
  std::unique_ptr<TlsDoor> door;
  std::unique_ptr<Listener> listener;
};

absl::StatusOr<std::unique_ptr<FleetService>> FleetService::Start(FleetServiceOptions options,
                                                                  FleetDriver& fleet) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto doors = std::make_unique<Doors>(std::move(options), fleet);
  if (doors->options.network) RETURN_IF_ERROR(doors->OpenNetwork());
  Doors* const raw = doors.get();
  const auto take = [raw](int connection, uid_t uid) { raw->Take(connection, uid); };
  const auto admits = [raw](uid_t uid) { return raw->Admits(uid); };
  ASSIGN_OR_RETURN(doors->listener, Listener::Start(raw->options.socket, take,
                                                    raw->options.roles.empty()
                                                        ? std::function<bool(uid_t)>()
                                                        : std::function<bool(uid_t)>(admits)));
  return std::unique_ptr<FleetService>(new FleetService(std::move(doors)));
}

FleetService::FleetService(std::unique_ptr<Doors> doors) : doors_(std::move(doors)) {}

int FleetService::network_port() const {
  return doors_->door == nullptr ? 0 : doors_->door->port();
}

FleetService::~FleetService() {
  doors_->listener.reset();
  doors_->fleet.Close();
  doors_->door.reset();
  doors_->users.clear();
}

}  // namespace weft
