#include "coordinator/service/caller.h"

#include <pwd.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/authority.h"
#include "process/tls.h"

namespace weft {
namespace {

constexpr std::pair<Role, BundleRole> kRoles[] = {{Role::kAgent, BundleRole::kAgent},
                                                  {Role::kViewer, BundleRole::kViewer},
                                                  {Role::kSubmitter, BundleRole::kSubmitter},
                                                  {Role::kOperator, BundleRole::kOperator}};

absl::string_view NameOf(Role role) {
  for (const auto& [each, bundle] : kRoles) {
    if (each == role) return RoleName(bundle);
  }
  return "";
}

}  // namespace

std::optional<Role> ParseRole(absl::string_view name) {
  for (const auto& [role, bundle] : kRoles) {
    if (RoleName(bundle) == name) return role;
  }
  return std::nullopt;
}

bool MayOffer(const Caller& caller) {
  return caller.role == Role::kAgent || (caller.role == Role::kOperator && caller.uid >= 0);
}

std::string CallerText(const Caller& caller) {
  const std::string uid = caller.uid < 0 ? "" : absl::StrCat(", uid ", caller.uid);
  return absl::StrCat(caller.name, " (", NameOf(caller.role), uid, ")");
}

std::string UserName(int64_t uid) {
  passwd entry = {};
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(static_cast<uid_t>(uid), &entry, buffer, sizeof(buffer), &found) != 0 ||
      found == nullptr) {
    return absl::StrCat(uid);
  }
  return found->pw_name;
}

std::optional<Caller> SocketCaller(int64_t uid, const std::map<std::string, Role>& roles) {
  const std::string name = UserName(uid);
  if (uid == static_cast<int64_t>(geteuid())) return Caller{name, uid, Role::kOperator};
  const auto found = roles.find(name);
  if (found == roles.end()) return std::nullopt;
  return Caller{name, uid, found->second};
}

// A certificate without a role was issued before there were any: to an agent.
CallerFinder TlsCallers(const std::string& revoked_file) {
  return [revoked_file](const grpc::ServerContextBase& context) -> absl::StatusOr<Caller> {
    ASSIGN_OR_RETURN(const std::vector<CertificateFacts> shown, PeerCertificates(context));
    if (shown.empty()) return absl::PermissionDeniedError("no certificate was shown");
    RETURN_IF_ERROR(CheckStillWelcome(shown, revoked_file));
    const std::string& word = shown.front().role;
    const std::optional<Role> role = word.empty() ? Role::kAgent : ParseRole(word);
    if (role) return Caller{shown.front().name, -1, *role};
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate of ", shown.front().name, " is a ", word, "'s"));
  };
}

}  // namespace weft
