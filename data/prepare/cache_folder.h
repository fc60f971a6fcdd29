// The folder of a cache of tokens. What lies there is taken for the tokens of a text, so nobody may
// have put it there whom the user does not trust with that: it is the user's own folder, or that of
// a group which shares it. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace weft {

// Makes the folder if `makes` (of nobody else, if `is_private`), and judges it. A folder that is
// not there is none to judge. PermissionDenied: everybody may write in it, or it is another user's
// and of no group of this one that writes in it; root takes any user's. InvalidArgument: it cannot
// be made. Both name the folder and the cure.
absl::Status CheckCacheFolder(const std::string& folder, bool makes, bool is_private = false);

// Says whether a file of such a folder is a regular one that not everybody may write to. A link is
// none.
bool IsTrustedFile(const std::string& path);

// Returns what a trusted file holds; nullopt: there is none, or it cannot be read.
std::optional<std::string> ReadTrustedFile(const std::string& path, int64_t most_bytes);

}  // namespace weft
