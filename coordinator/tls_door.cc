#include "coordinator/tls_door.h"

#include <grpc/support/log.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/log.h"
#include "process/rpc.h"
#include "process/tcp_socket.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr int kHandshakeMs = 10000;  // whoever connects and says nothing is cut off
constexpr int kAskMs = 10000;        // an agent whose link is cut says nothing
constexpr int kAnswerMs = 5000;
constexpr int kLeastAskMs = 5000;  // agents ask, too; gRPC's 5 minutes would cut them off
constexpr auto kDoorGrace = std::chrono::seconds(2);

// gRPC logs a failed handshake without the peer's address, and each one: NetworkPeers says it.
void LogForGrpc(gpr_log_func_args* line) {
  if (absl::StrContains(line->file, "ssl_transport_security")) return;
  LogWarning(absl::StrCat("gRPC: ", line->message));
}

// gRPC says nothing of a handshake that went well; the first call is the earliest that is heard.
class CallWatch final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallWatch(NetworkPeers& peers) : peers_(peers) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    const grpc::ServerContextBase& context = *call->server_context();
    const std::optional<std::string> name = PeerName(context);
    if (name) peers_.Called(context.peer(), *name, BootTimeMs());
    return nullptr;  // nothing else of the call is of interest
  }

 private:
  NetworkPeers& peers_;
};

}  // namespace

TlsDoor::TlsDoor(int connections)
    : peers_(connections > 0 ? connections : std::numeric_limits<int>::max()) {}

// Connections are accepted here rather than by gRPC, which would count nobody's.
absl::StatusOr<std::unique_ptr<TlsDoor>> TlsDoor::Open(
    const TlsDoorOptions& options, const std::vector<grpc::Service*>& services) {
  ASSIGN_OR_RETURN(const NetworkAddress address, ParseAddress(options.address));
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                   ListenerCredentials(options.bundle_file, options.revoked_file));
  gpr_set_log_function(LogForGrpc);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kAskMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAnswerMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastAskMs);
  std::unique_ptr<TlsDoor> door(new TlsDoor(options.connections));
  door->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
  watches.push_back(std::make_unique<CallWatch>(door->peers_));
  builder.experimental().SetInterceptorCreators(std::move(watches));
  for (grpc::Service* service : services) builder.RegisterService(service);
  ASSIGN_OR_RETURN(const int listener, ListenAt(address));
  door->port_ = PortOf(listener);
  door->server_ = builder.BuildAndStart();
  if (door->server_ == nullptr) {
    close(listener);
    return absl::InternalError("gRPC does not start a server");
  }
  ASSIGN_OR_RETURN(door->loop_,
                   AcceptLoop::Start(
                       listener, [raw = door.get()](int fd) { raw->Take(fd); },
                       [raw = door.get()] { raw->peers_.LookForFailed(BootTimeMs()); }));
  return door;
}

// A connection that goes on without a word is gRPC's to end.
void TlsDoor::Take(int connection) {
  const int yes = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);  // as gRPC does for its own
  if (!peers_.Accept(connection, BootTimeMs())) return;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
  taken.fd = connection;
  acceptor_->HandleNewConnection(&taken);
}

TlsDoor::~TlsDoor() {
  loop_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + kDoorGrace);
  server_->Wait();
}

}  // namespace weft
