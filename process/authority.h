// Authority is weft's own certificate authority, a folder of this user alone (0700): `ca.key`,
// `ca.crt`, `issued` and `revoked`. It issues the bundles (process/tls_bundle.h) that let agents
// and the coordinator know each other off the host. `issued` and `revoked` have a line for each
// certificate, "<serial> <role> <name> <end of its time>"; weftd looks at `revoked` for each new
// connection. Several processes may use one folder at once.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// The purpose that a certificate is good for: an agent's opens no listener in weftd's place, nor
// the door of people; a viewer may look, a submitter has jobs, an operator may do all.
enum class BundleRole { kAgent, kServer, kViewer, kSubmitter, kOperator };
// "agent", which is also the subject's organizational unit.
absl::string_view RoleName(BundleRole role);

inline constexpr int64_t kBundleDays = 90;

// Certificates hold from so long before they are made: clocks of hosts differ, and are set back
// while a run goes on.
inline constexpr int64_t kClockSkewS = 86400;

class Authority {
 public:
  // Makes the folder with a new key. FailedPrecondition if something is there already.
  static absl::StatusOr<Authority> Create(const std::string& folder, int64_t now_s);
  // One that no folder keeps: nobody can issue from it, or revoke, once it is destroyed.
  static absl::StatusOr<Authority> CreateUnkept(int64_t now_s);
  // NotFound if there is none; PermissionDenied if others may read its key.
  static absl::StatusOr<Authority> Open(const std::string& folder);

  // The text of a new bundle, which holds from kClockSkewS before `now_s` for `days`. A server
  // answers to "weftd" and `names`, an agent has exactly one name, its host's, and a person one,
  // the user's. InvalidArgument for names that are none.
  absl::StatusOr<std::string> Issue(BundleRole role, const std::vector<std::string>& names,
                                    int64_t now_s, int64_t days = kBundleDays) const;

  // Revokes every certificate that was issued to `name` and returns how many. NotFound if there is
  // none.
  absl::StatusOr<int> Revoke(const std::string& name) const;

  std::string revoked_file() const { return folder_ + "/revoked"; }

 private:
  explicit Authority(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;       // empty: it is not kept
  std::string key_;          // PEM
  std::string certificate_;  // PEM
};

}  // namespace weft
