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

absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Every call has a deadline; a stream's life is bounded by its lease instead.
void SetDeadline(grpc::ClientContext& context, int64_t timeout_ms);

// "unix:<path>". InvalidArgument if `path` is relative or too long for a socket (107 bytes): then
// use a short link to the folder, or the user's runtime folder.
absl::StatusOr<std::string> UnixTarget(const std::string& path);

// A channel of its own to `target` that dials again within 0.1 to 0.5 s after a loss, and gives a
// listener that is slow to answer 10 s. Does not block; the first call says whether anybody is
// there. InvalidArgument unless `target` is a unix socket: TCP would need TLS, which is not built
// yet.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target);

}  // namespace weft
