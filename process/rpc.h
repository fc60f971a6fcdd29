// gRPC as the rest of weft sees it: absl::Status instead of grpc::Status, a deadline on every call,
// unix sockets only. Plain functions, safe from any thread.
#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

// A channel of its own over a connection that is made at once, to a listener of this user alone.
// When it breaks, open another one. Unavailable if nobody listens; PermissionDenied if the listener
// is another user's; InvalidArgument unless `target` is a unix socket: TCP would need TLS, which is
// not built yet.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target);

}  // namespace weft
