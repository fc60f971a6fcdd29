#include "process/folder_reader.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "process/folder_entry.h"

namespace weft {
namespace {

// The kernel's form of a list (linux/posix_acl_xattr.h): a version, then entries of 8 bytes, all
// little-endian, in the order of their tags.
constexpr uint32_t kVersion = 2;
constexpr uint32_t kNoId = 0xffffffff;
constexpr size_t kMostBytes = 4096;
constexpr char kAccess[] = "system.posix_acl_access";
constexpr char kDefault[] = "system.posix_acl_default";  // of what is made in the folder
enum Tag : uint16_t { kOwner = 1, kUser = 2, kGroup = 4, kMask = 16, kOther = 32 };

struct Entry {
  uint16_t tag;
  uint16_t permissions;
  uint32_t id;
};
static_assert(sizeof(Entry) == 8);

std::string ListText(mode_t mode, uid_t reader, unsigned reads) {
  const auto bits = [&](int shift) { return static_cast<uint16_t>((mode >> shift) & 7); };
  const auto mask = static_cast<uint16_t>(bits(3) | reads);
  const std::array<Entry, 5> entries = {{{kOwner, bits(6), kNoId},
                                         {kUser, static_cast<uint16_t>(reads), reader},
                                         {kGroup, bits(3), kNoId},
                                         {kMask, mask, kNoId},
                                         {kOther, bits(0), kNoId}}};
  const uint32_t version = htole32(kVersion);
  std::string text(reinterpret_cast<const char*>(&version), sizeof version);
  for (const Entry& each : entries) {
    const Entry stored = {htole16(each.tag), htole16(each.permissions), htole32(each.id)};
    text.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return text;
}

// The rights of the group and of all others stay as the umask has left them.
bool SetLists(int folder, uid_t reader) {
  struct stat made = {};
  if (fstat(folder, &made) != 0) return false;
  const std::string list = ListText(made.st_mode, reader, /*reads=*/5);
  return fsetxattr(folder, kDefault, list.data(), list.size(), 0) == 0 &&
         fsetxattr(folder, kAccess, list.data(), list.size(), 0) == 0;
}

}  // namespace

int MakeFolderFor(uid_t reader, const std::string& folder) {
  const std::string parent = std::filesystem::path(folder).parent_path();
  int error = MakeFolder(parent);
  if (error == 0 && mkdir(folder.c_str(), 0755) != 0) error = errno;
  if (error != 0) return error;
  const int made = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (made < 0) return errno;
  struct stat found = {};
  const bool is_own = fstat(made, &found) == 0 && found.st_uid == geteuid();
  const bool keeps = is_own && (SetLists(made, reader) || errno == EOPNOTSUPP || errno == ENOSYS);
  const int why = is_own ? errno : EPERM;
  close(made);
  return keeps ? 0 : why;
}

std::optional<uid_t> ReaderOf(const std::string& folder) {
  std::string list(kMostBytes, '\0');
  const ssize_t bytes = getxattr(folder.c_str(), kAccess, list.data(), list.size());
  for (ssize_t at = sizeof(uint32_t); at + ssize_t{8} <= bytes; at += 8) {
    Entry entry = {};
    std::memcpy(&entry, list.data() + at, sizeof entry);
    if (le16toh(entry.tag) == kUser) return le32toh(entry.id);
  }
  return std::nullopt;
}

void LetRead(uid_t reader, int file) {
  const std::string list = ListText(0600, reader, /*reads=*/4);
  // Where the file system keeps no lists, the file stays this user's alone.
  (void)fsetxattr(file, kAccess, list.data(), list.size(), 0);
}

}  // namespace weft
