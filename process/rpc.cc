#include "process/rpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/un.h>

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr int kConnectMs = 10000;

}  // namespace

// The two sets of codes are numbered alike on purpose.
absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), absl::StrCat(status.message()));
}

void SetDeadline(grpc::ClientContext& context, int64_t timeout_ms) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
}

absl::StatusOr<std::string> UnixTarget(const std::string& path) {
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket ", path, ": is not an absolute path; begin with /"));
  }
  if (path.size() > kLongest) {
    return absl::InvalidArgumentError(absl::StrCat("socket ", path, ": has ", path.size(),
                                                   " bytes, a unix socket takes ", kLongest,
                                                   "; use a shorter folder or a link to it"));
  }
  return absl::StrCat("unix:", path);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target) {
  if (!absl::StartsWith(target, "unix:/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator ", target, ": is not supported yet; use unix:/path/to/socket"));
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This is no pause, whatever its name says, but how long one attempt to connect may take. On a
  // machine with more to do than cores the listener may answer late, but it answers. Nobody
  // listening is known at once and dialled again after the backoff.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Without it the :authority of a unix target is the path, which HTTP/2 servers may refuse.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace weft
