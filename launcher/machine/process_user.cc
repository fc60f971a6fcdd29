#include "launcher/machine/process_user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Variables of these names, and of those that begin so.
constexpr const char* kInherited[] = {"PATH", "TZ", "LANG", "TMPDIR", "LD_LIBRARY_PATH"};
constexpr const char* kInheritedBegins[] = {"LC_", "CUDA_", "NVIDIA_", "WEFT_"};

// glibc's own functions would change all threads, and take locks that a child may never get.
bool SetGroupsOfThread(const std::vector<gid_t>& groups) {
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// The effective id alone.
bool SetOfThread(long call, uint32_t id) {
  return syscall(call, -1, id, -1) == 0;
}

}  // namespace

absl::StatusOr<ProcessUser> FindProcessUser(const std::string& name, int64_t uid) {
  passwd entry = {};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  const std::string whom =
      absl::StrCat("the job is of user ", name, ", who is ", uid, " for weftd");
  if (found == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(whom, " and unknown on this host; make the user known here, too"));
  }
  if (found->pw_uid == 0 || static_cast<int64_t>(found->pw_uid) != uid) {
    return absl::FailedPreconditionError(absl::StrCat(
        whom, " and ", found->pw_uid, " on this host; give the user one number everywhere"));
  }
  ProcessUser user{name, found->pw_uid, found->pw_gid, {}, found->pw_dir};
  int count = 64;
  user.groups.resize(static_cast<size_t>(count));
  while (getgrouplist(name.c_str(), user.gid, user.groups.data(), &count) < 0) {
    user.groups.resize(static_cast<size_t>(count));
  }
  user.groups.resize(static_cast<size_t>(count));
  return user;
}

bool MayInherit(absl::string_view variable) {
  const auto is_it = [&](const char* name) { return variable == name; };
  const auto begins = [&](const char* begin) { return absl::StartsWith(variable, begin); };
  return std::any_of(std::begin(kInherited), std::end(kInherited), is_it) ||
         std::any_of(std::begin(kInheritedBegins), std::end(kInheritedBegins), begins);
}

std::map<std::string, std::string> VariablesOf(const ProcessUser& user) {
  return {{"HOME", user.home}, {"USER", user.name}, {"LOGNAME", user.name}};
}

bool BecomeUser(const ProcessUser& user) {
  return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
         SetGroupsOfThread(user.groups) &&
         syscall(SYS_setresgid, user.gid, user.gid, user.gid) == 0 &&
         syscall(SYS_setresuid, user.uid, user.uid, user.uid) == 0 &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_setuid, 0) != 0;
}

absl::Status GiveTo(const ProcessUser& user, const std::string& path) {
  if (lchown(path.c_str(), user.uid, user.gid) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot give ", path, " to user ", user.name));
}

std::optional<uid_t> IdOf(const ProcessUser* user) {
  return user == nullptr ? std::nullopt : std::optional<uid_t>(user->uid);
}

std::optional<uid_t> OwnerOf(const Descriptor& pidfd) {
  const auto process = [&] {
    std::ifstream facts(absl::StrCat("/proc/self/fdinfo/", pidfd.get()));
    pid_t pid = 0;
    for (std::string word; facts >> word;) {
      if (word == "Pid:" && facts >> pid) return pid;
    }
    return 0;
  };
  const pid_t pid = process();
  struct stat found = {};
  const bool is_known = pid > 0 && stat(absl::StrCat("/proc/", pid).c_str(), &found) == 0;
  // As long as it is there, its number is no other's.
  if (!is_known || process() != pid) return std::nullopt;
  return found.st_uid;
}

AsUser::AsUser(const ProcessUser* user) : is_other_(user != nullptr) {
  if (!is_other_) return;
  const int count = getgroups(0, nullptr);
  own_groups_.resize(static_cast<size_t>(std::max(0, count)));
  if (count > 0) getgroups(count, own_groups_.data());
  CHECK(SetGroupsOfThread(user->groups));
  CHECK(SetOfThread(SYS_setresgid, user->gid) && SetOfThread(SYS_setresuid, user->uid));
}

AsUser::~AsUser() {
  if (!is_other_) return;
  CHECK(SetOfThread(SYS_setresuid, 0) && SetOfThread(SYS_setresgid, getgid()));
  CHECK(SetGroupsOfThread(own_groups_));
}

}  // namespace weft
