#include "process/rpc.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr absl::string_view kUnix = "unix:";
constexpr int kConnectS = 10;

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
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket ", path, ": is not an absolute path; begin with /"));
  }
  return absl::StrCat(kUnix, path);
}

bool UseSocketPath(int socket, const std::string& path, SocketUse use) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::string shorter = path;
  int folder = -1;
  const size_t slash = path.rfind('/');
  if (path.size() >= sizeof(address.sun_path) && slash != std::string::npos) {
    folder = open(path.substr(0, slash + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return false;
    shorter = absl::StrCat("/proc/self/fd/", folder, path.substr(slash));
  }
  int code = -1;
  errno = ENAMETOOLONG;
  if (shorter.size() < sizeof(address.sun_path)) {
    shorter.copy(address.sun_path, shorter.size());
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    code = use == SocketUse::kBind ? bind(socket, generic, sizeof(address))
                                   : connect(socket, generic, sizeof(address));
  }
  const int reason = errno;
  if (folder >= 0) close(folder);
  errno = reason;
  return code == 0;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target) {
  absl::string_view path = target;
  if (!absl::ConsumePrefix(&path, kUnix) || !absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator ", target, ": is not supported yet; use unix:/path/to/socket"));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  const timeval patience = {.tv_sec = kConnectS, .tv_usec = 0};  // a full queue at the listener
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  ucred peer = {};
  socklen_t size = sizeof(peer);
  absl::Status status;
  if (!UseSocketPath(fd, std::string(path), SocketUse::kConnect)) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(errno));
    status = errno == EACCES ? absl::PermissionDeniedError(why) : absl::UnavailableError(why);
  } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    status = absl::PermissionDeniedError(
        absl::StrCat(path, ": the listener is of user ", peer.uid, ", not of this one"));
  }
  if (!status.ok()) {
    close(fd);
    return status;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomInsecureChannelFromFd("localhost", fd, arguments);  // owns it
}

}  // namespace weft
