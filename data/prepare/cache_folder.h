// The folder of a cache of tokens. What lies there is taken for the tokens of a text, so nobody may
// have put it there whom the user does not trust with that: it is the user's own folder, or that of
// a group which shares it. Any thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Makes the folder if `makes` (of nobody else, if `is_private`), and judges it. A folder that is
// not there is none to judge. PermissionDenied: everybody may write in it, or it is another user's
// and of no group of this one that writes in it; root takes any user's. InvalidArgument: it cannot
// be made. Both name the folder and the cure; `option` is what names another folder.
absl::Status CheckCacheFolder(const std::string& folder, bool makes, bool is_private = false,
                              absl::string_view option = "data.cache");

// Returns the group of this user that shares the folder: it may write there; nullopt: none does.
std::optional<gid_t> GroupOfCacheFolder(const std::string& folder);

// Says whether a file of such a folder is taken: a regular one of this user or of root (root takes
// the folder's owner's), or in a folder that a group shares one of that group; nobody else may
// write to it, and it can be read. PermissionDenied names the file, which of this it is not, and
// the cure; else what the disk says: NotFound where there is none.
absl::Status CheckTrustedFile(const std::string& path);
bool IsTrustedFile(const std::string& path);

// Returns what a trusted file holds; nullopt: there is none, or it cannot be read.
std::optional<std::string> ReadTrustedFile(const std::string& path, int64_t most_bytes);

}  // namespace weft
