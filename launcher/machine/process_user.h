// ProcessUser: the user of this host as whom an agent that runs as root starts a job's processes,
// which are the submitter's then. What root itself does with that user's files it does with that
// user's rights, too.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/machine/descriptor.h"

namespace weft {

struct ProcessUser {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // all, by the host's own table
  std::string home;
};

// The user of that name, who has that id for weftd. FailedPrecondition: this host knows none of the
// name, or by another id, or it is root.
absl::StatusOr<ProcessUser> FindProcessUser(const std::string& name, int64_t uid);

// Whether a process of that user may see the variable of root's: none but those that say where
// programs are, how to print, which devices are meant, and weft's own.
bool MayInherit(absl::string_view variable);
// The variables that tell a process of that user of itself.
std::map<std::string, std::string> VariablesOf(const ProcessUser& user);

// Makes this process that user's for good: its groups, no capability, and none by what it executes
// (no_new_privs). For a child between fork and exec: async-signal-safe. False: it may not go on.
bool BecomeUser(const ProcessUser& user);

// Gives a folder or file of root's, in one that others cannot write, to that user.
absl::Status GiveTo(const ProcessUser& user, const std::string& path);
// Its id; none of nobody.
std::optional<uid_t> IdOf(const ProcessUser* user);

// The user of the process that a pidfd is of; none: it has ended, or the descriptor is another one.
std::optional<uid_t> OwnerOf(const Descriptor& pidfd);

// While it lives, this thread opens and makes files as that user, whatever that user may have put
// in their places; null: as ever. So does a thread that it starts meanwhile, for
// good. REQUIRES: root.
class AsUser {
 public:
  explicit AsUser(const ProcessUser* user);
  ~AsUser();
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

 private:
  bool is_other_ = false;
  std::vector<gid_t> own_groups_;
};

}  // namespace weft
