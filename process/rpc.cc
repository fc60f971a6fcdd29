#include "process/rpc.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr absl::string_view kUnix = "unix:";
constexpr int kConnectS = 10;
// A first packet that is lost is sent again after 1 s, 3 s and 7 s: a link that is up again is not
// waited for longer than the next attempt takes.
constexpr int kTcpConnectMs = 5000;
// A link that is cut says nothing. Bytes that nobody has taken for so long break the connection.
constexpr int kTcpAskMs = 10000;
constexpr int kTcpAnswerMs = 5000;

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenTcpChannel(const std::string& target,
                                                              const BundleSource& source) {
  RETURN_IF_ERROR(ParseAddress(target).status());
  if (source.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator ", target,
                     ": off this host only TLS is spoken, and no bundle is "
                     "given; `weftd issue agent` makes one"));
  }
  ASSIGN_OR_RETURN(const TlsBundle bundle, LoadBundle(source));
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   DialCredentials(bundle));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetSslTargetNameOverride(kCoordinatorName);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // the next one dials at once
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // whatever http_proxy says
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kTcpConnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kTcpAskMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kTcpAnswerMs);
  return grpc::CreateCustomChannel(absl::StrCat("dns:///", target), credentials, arguments);
}

// Anybody may listen in a folder that anybody can write.
bool IsBelieved(uid_t listener, const std::string& path, Listens who) {
  if (listener == geteuid() || listener == 0) return true;
  if (who == Listens::kThisUser) return false;
  struct stat folder = {};
  const std::string name = path.substr(0, path.rfind('/') + 1);
  const bool is_known = stat(name.c_str(), &folder) == 0;
  const bool is_owners_alone = (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return is_known && is_owners_alone && folder.st_uid == listener;
}

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

absl::StatusOr<NetworkAddress> ParseAddress(absl::string_view text) {
  NetworkAddress address;
  const size_t colon = text.rfind(':');
  absl::string_view host = text.substr(0, colon == absl::string_view::npos ? 0 : colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  const bool is_host = !host.empty() && (bracketed || !absl::StrContains(host, ':')) &&
                       host.find_first_of("/ []") == absl::string_view::npos;
  if (!is_host || !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address ", text, ": is not HOST:PORT, for example 10.0.0.1:7800 or [fd00::1]:7800"));
  }
  address.host = std::string(host);
  return address;
}

std::string AddressText(const NetworkAddress& address) {
  const bool brackets = absl::StrContains(address.host, ':');
  return absl::StrCat(brackets ? "[" : "", address.host, brackets ? "]:" : ":", address.port);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const BundleSource& bundle,
                                                           Listens who) {
  absl::string_view path = target;
  if (!absl::ConsumePrefix(&path, kUnix)) return OpenTcpChannel(target, bundle);
  if (!absl::StartsWith(path, "/")) return UnixTarget(std::string(path)).status();
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
  } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
             !IsBelieved(peer.uid, std::string(path), who)) {
    status = absl::PermissionDeniedError(absl::StrCat(
        path, ": the listener is of user ", peer.uid,
        who == Listens::kThisUser ? ", not of this one"
                                  : ", who is not the one that alone can write its folder"));
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
