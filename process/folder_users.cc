#include "process/folder_users.h"

#include <endian.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

namespace weft {
namespace {

// The kernel's form of a list (linux/posix_acl_xattr.h): a version, then entries of 8 bytes, all
// little-endian, in the order of their tags.
constexpr uint32_t kVersion = 2;
constexpr uint32_t kNoId = 0xffffffff;
constexpr size_t kMostBytes = 65536;  // of any extended attribute
constexpr char kAccess[] = "system.posix_acl_access";
constexpr char kDefault[] = "system.posix_acl_default";  // of what is made in the folder
enum Tag : uint16_t { kOwner = 1, kUser = 2, kGroup = 4, kNamedGroup = 8, kMask = 16, kOther = 32 };
constexpr uint16_t kPass = 1, kRead = 4, kReadAndPass = 5, kAll = 7;

struct Entry {
  uint16_t tag;
  uint16_t permissions;
  uint32_t id;
};
static_assert(sizeof(Entry) == 8);

// AccessList is a list as a value. Entries that others have made stay as they are.
class AccessList {
 public:
  // As `mode` says it, of nobody by name.
  static AccessList OfMode(mode_t mode) {
    const auto bits = [&](int shift) { return static_cast<uint16_t>((mode >> shift) & 7); };
    AccessList list;
    list.entries_ = {{kOwner, bits(6), kNoId}, {kGroup, bits(3), kNoId}, {kOther, bits(0), kNoId}};
    return list;
  }
  // The one that the file or folder has; none: it has none.
  static std::optional<AccessList> Of(const std::string& path, const char* which) {
    std::string text(kMostBytes, '\0');
    const ssize_t bytes = getxattr(path.c_str(), which, text.data(), text.size());
    return Parse(text, bytes);
  }
  static std::optional<AccessList> Of(int file, const char* which) {
    std::string text(kMostBytes, '\0');
    const ssize_t bytes = fgetxattr(file, which, text.data(), text.size());
    return Parse(text, bytes);
  }

  // Gives the user at least so much.
  void Let(uid_t user, uint16_t permissions) {
    for (Entry& each : entries_) {
      if (each.tag != kUser || each.id != user) continue;
      each.permissions = static_cast<uint16_t>(each.permissions | permissions);
      return;
    }
    entries_.push_back({kUser, permissions, user});
  }

  bool NamesAUser() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const Entry& each) { return each.tag == kUser; });
  }
  // Who may only pass through is neither.
  FolderUsers users() const {
    FolderUsers users;
    for (const Entry& each : entries_) {
      if (each.tag != kUser || (each.permissions & kReadAndPass) != kReadAndPass) continue;
      (each.permissions == kAll ? users.writers : users.readers).insert(each.id);
    }
    return users;
  }

  bool Set(int file, const char* which) const {
    const std::string text = Text();
    return fsetxattr(file, which, text.data(), text.size(), 0) == 0;
  }

 private:
  static std::optional<AccessList> Parse(const std::string& text, ssize_t bytes) {
    AccessList list;
    for (auto at = static_cast<ssize_t>(sizeof kVersion); at + ssize_t{8} <= bytes; at += 8) {
      Entry entry = {};
      std::memcpy(&entry, text.data() + at, sizeof entry);
      entry = {le16toh(entry.tag), le16toh(entry.permissions), le32toh(entry.id)};
      if (entry.tag != kMask) list.entries_.push_back(entry);
    }
    if (list.entries_.empty()) return std::nullopt;
    return list;
  }

  // The mask takes nothing away from those who are named.
  std::string Text() const {
    std::vector<Entry> entries = entries_;
    Entry mask = {kMask, 0, kNoId};
    for (const Entry& each : entries_) {
      const bool is_masked = each.tag == kUser || each.tag == kGroup || each.tag == kNamedGroup;
      if (is_masked) mask.permissions = static_cast<uint16_t>(mask.permissions | each.permissions);
    }
    entries.push_back(mask);
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.tag, a.id) < std::tie(b.tag, b.id);
    });
    const uint32_t version = htole32(kVersion);
    std::string text(reinterpret_cast<const char*>(&version), sizeof version);
    for (const Entry& each : entries) {
      const Entry stored = {htole16(each.tag), htole16(each.permissions), htole32(each.id)};
      text.append(reinterpret_cast<const char*>(&stored), sizeof stored);
    }
    return text;
  }

  std::vector<Entry> entries_;  // without the mask
};

bool KeepsNoLists(int error) {
  return error == EOPNOTSUPP || error == ENOSYS;
}

// The primary group of all of them; none: they have none in common.
std::optional<gid_t> GroupOf(const std::set<uid_t>& users) {
  std::optional<gid_t> group;
  for (const uid_t user : users) {
    passwd entry = {};
    passwd* found = nullptr;
    std::array<char, 4096> buffer;
    getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found);
    if (found == nullptr || (group && *group != found->pw_gid)) return std::nullopt;
    group = found->pw_gid;
  }
  return group;
}

// Where the file system keeps no lists, as NFS 4 does not, the writers' own group stands for them,
// if this user is in it. What they make themselves is of that group, too.
int LetInByGroup(int folder, const struct stat& found, const std::set<uid_t>& writers,
                 mode_t rights) {
  const std::optional<gid_t> group = GroupOf(writers);
  if (!group) return writers.empty() ? 0 : EOPNOTSUPP;
  const bool is_given = fchown(folder, static_cast<uid_t>(-1), *group) == 0 &&
                        fchmod(folder, (found.st_mode & 07777) | rights) == 0;
  return is_given ? 0 : EOPNOTSUPP;
}

// The rights of the group and of all others stay as the umask has left them.
int LetInto(int folder, const FolderUsers& users) {
  struct stat found = {};
  if (fstat(folder, &found) != 0) return errno;
  if (found.st_uid != geteuid()) return EPERM;
  AccessList access = AccessList::Of(folder, kAccess).value_or(AccessList::OfMode(found.st_mode));
  AccessList later = AccessList::Of(folder, kDefault).value_or(access);
  for (AccessList* const list : {&access, &later}) {
    for (const uid_t reader : users.readers) list->Let(reader, kReadAndPass);
    for (const uid_t writer : users.writers) list->Let(writer, kAll);
  }
  later.Let(geteuid(), kAll);  // of what those who write here make, this user is not the owner
  if (later.Set(folder, kDefault) && access.Set(folder, kAccess)) return 0;
  return KeepsNoLists(errno) ? LetInByGroup(folder, found, users.writers, S_IRWXG) : errno;
}

// Lets all of them come through a folder that this user has made for people, now or before.
int LetPass(const std::string& folder, bool is_new, const FolderUsers& users) {
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return is_new ? errno : 0;  // those before are somebody else's matter
  struct stat found = {};
  std::optional<AccessList> list = AccessList::Of(opened, kAccess);
  const bool is_own = fstat(opened, &found) == 0 && found.st_uid == geteuid();
  int error = 0;
  if (is_own && (is_new || (list && list->NamesAUser()))) {
    AccessList passed = list.value_or(AccessList::OfMode(found.st_mode));
    for (const uid_t user : users.all()) passed.Let(user, kPass);
    if (!passed.Set(opened, kAccess)) {
      error = KeepsNoLists(errno) ? LetInByGroup(opened, found, users.writers, S_IXGRP) : errno;
    }
  }
  close(opened);
  return error;
}

}  // namespace

std::set<uid_t> FolderUsers::all() const {
  std::set<uid_t> users = readers;
  users.insert(writers.begin(), writers.end());
  return users;
}

int MakeFolderFor(const FolderUsers& users, const std::string& folder) {
  for (size_t end = folder.find('/', 1); end != std::string::npos;
       end = folder.find('/', end + 1)) {
    const std::string parent = folder.substr(0, end);
    const bool is_new = mkdir(parent.c_str(), 0755) == 0;
    struct stat found = {};
    const int why = errno;
    if (!is_new && why != EEXIST && stat(parent.c_str(), &found) != 0) return why;
    const int error = LetPass(parent, is_new, users);
    if (error != 0) return error;
  }
  if (mkdir(folder.c_str(), 0755) != 0) return errno;
  return LetIn(users, EntryOf(folder));
}

int LetIn(const FolderUsers& users, const EntryPath& folder) {
  const OpenedEntry found = MakeEntryFolder(folder);
  if (!found.ok()) return found.error;
  // A folder that is open as a place alone takes no list.
  const int opened = openat(found.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int error = errno;
  close(found.descriptor);
  if (opened < 0) return error;
  error = LetInto(opened, users);
  close(opened);
  return error;
}

bool IsMadeForOthers(const std::string& folder) {
  const std::optional<AccessList> list = AccessList::Of(folder, kAccess);
  struct stat found = {};
  return (list && list->NamesAUser()) ||
         (stat(folder.c_str(), &found) == 0 && (found.st_mode & S_IWGRP) != 0);
}

FolderUsers UsersOf(const std::string& folder) {
  const std::optional<AccessList> list = AccessList::Of(folder, kAccess);
  return list ? list->users() : FolderUsers{};
}

void LetRead(const std::set<uid_t>& readers, int file) {
  if (readers.empty()) return;
  AccessList list = AccessList::OfMode(0600);
  for (const uid_t reader : readers) list.Let(reader, kRead);
  // Where the file system keeps no lists, the file stays this user's alone.
  (void)list.Set(file, kAccess);
}

}  // namespace weft
