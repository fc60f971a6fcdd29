// Callers of weftd and what they may do: on a unix socket the user id decides, over TLS the role in
// the certificate.
#pragma once
#include <grpcpp/server_context.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

enum class Role {
  kAgent,      // offers hosts, and runs ranks there; no more
  kViewer,     // may look
  kSubmitter,  // may look, submit, and change jobs of its own
  kOperator,   // may do all that people do, and offer hosts on weftd's socket
};
// "viewer"; none: there is no such role.
std::optional<Role> ParseRole(absl::string_view name);

struct Caller {
  std::string name;  // user name, or the name in its certificate
  int64_t uid = -1;  // -1: it came over the network
  Role role = Role::kViewer;
};

// Whether it may offer hosts and start ranks there. Over the network that takes a host's own
// certificate.
bool MayOffer(const Caller& caller);

// "ann (submitter, uid 1000)".
std::string CallerText(const Caller& caller);
// The name of a user; its number where it has none.
std::string UserName(int64_t uid);

// Says who a call comes from. PermissionDenied: nobody who is let in. Called on gRPC's threads.
using CallerFinder = std::function<absl::StatusOr<Caller>(const grpc::ServerContextBase& context)>;

// The user at the other end of a unix socket. This process's own is an operator; `roles` are those
// of others, by name. None: the user is not let in.
std::optional<Caller> SocketCaller(int64_t uid, const std::map<std::string, Role>& roles);

// Over TLS: the certificate says it, for as long as it holds and is not revoked.
CallerFinder TlsCallers(const std::string& revoked_file);

}  // namespace weft
