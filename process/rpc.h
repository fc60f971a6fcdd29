// gRPC as the rest of weft sees it: absl::Status instead of grpc::Status, a deadline on every call,
// unix sockets on this host and TLS (tls.h) off it. Plain functions, safe from any thread.
#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "process/tls_bundle.h"

namespace weft {

// Messages are no larger: a job's list of 50,000 data files and the shards of 60,000 ranks are
// less.
inline constexpr int kMaxMessageBytes = 64 << 20;

absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Every call has a deadline; a stream's life is bounded by its lease instead.
void SetDeadline(grpc::ClientContext& context, int64_t timeout_ms);

// "unix:<path>". InvalidArgument if `path` is relative.
absl::StatusOr<std::string> UnixTarget(const std::string& path);

// Connects, or binds, a socket to the path of a unix socket of any length: 107 bytes are what a
// socket's address takes, so a longer path goes by way of its folder's descriptor. errno tells why
// not.
enum class SocketUse { kConnect, kBind };
bool UseSocketPath(int socket, const std::string& path, SocketUse use);

// "HOST:PORT", with an IPv6 address in brackets.
struct NetworkAddress {
  std::string host;
  int port = 0;
};
// InvalidArgument unless `text` is one.
absl::StatusOr<NetworkAddress> ParseAddress(absl::string_view text);
std::string AddressText(const NetworkAddress& address);

// Listens says which listener on a unix socket is believed: this user's and root's; or a service's,
// which is also that of the user who alone can write the folder that the socket lies in.
enum class Listens { kThisUser, kService };

// A channel of its own. When it breaks, open another one.
// "unix:<path>": over a connection that is made at once, to a listener of `who` alone.
// Unavailable if nobody listens; PermissionDenied if the listener is another user's.
// "HOST:PORT": over TLS with `bundle`; the connection is made by the first call, whose status tells
// why not. InvalidArgument without a bundle, or as the functions of tls.h and tls_bundle.h say.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const BundleSource& bundle = {},
                                                           Listens who = Listens::kThisUser);

}  // namespace weft
