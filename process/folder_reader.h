// The user for whom weftd has made a folder of its own: that user may read what is in it, and it
// goes on with that user's jobs alone. The folder's access control list (POSIX ACL) says so, so
// that it holds under any umask, is seen by getfacl, and goes with the folder.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

namespace weft {

// Makes `folder`, and its missing parents, as a folder of this user that `reader` may read, with
// what will be in it. 0, or an errno; EEXIST: it is there. Where the file system keeps no lists,
// the folder has the mode that the umask leaves.
int MakeFolderFor(uid_t reader, const std::string& folder);

// None: the folder was made for nobody, or is not there.
std::optional<uid_t> ReaderOf(const std::string& folder);

// Lets `reader` read a file of this user's that is open, and no group and nobody else.
void LetRead(uid_t reader, int file);

}  // namespace weft
