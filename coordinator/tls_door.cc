#include "coordinator/tls_door.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr int kHandshakeMs = 10000;  // whoever connects and says nothing is cut off
constexpr int kAskMs = 10000;        // an agent whose link is cut says nothing
constexpr int kAnswerMs = 5000;
constexpr int kLeastAskMs = 5000;  // agents ask, too; gRPC's 5 minutes would cut them off
constexpr auto kDoorGrace = std::chrono::seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<TlsDoor>> TlsDoor::Open(
    const TlsDoorOptions& options, const std::vector<grpc::Service*>& services) {
  RETURN_IF_ERROR(ParseAddress(options.address).status());
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                   ListenerCredentials(options.bundle_file, options.revoked_file));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // one coordinator a port
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kAskMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAnswerMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastAskMs);
  int port = 0;
  builder.AddListeningPort(options.address, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("address ", options.address,
                                               ": cannot be listened on; use an address of this "
                                               "host and a free port, or port 0 for any"));
  }
  return std::unique_ptr<TlsDoor>(new TlsDoor(std::move(server), port));
}

TlsDoor::TlsDoor(std::unique_ptr<grpc::Server> server, int port)
    : server_(std::move(server)), port_(port) {}

TlsDoor::~TlsDoor() {
  server_->Shutdown(std::chrono::system_clock::now() + kDoorGrace);
  server_->Wait();
}

}  // namespace weft
