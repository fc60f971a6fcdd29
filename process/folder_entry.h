// An entry of a folder in which another user may put links, pipes and files at any time: a run
// folder, a checkpoint folder. Whatever lies in one is opened here, by whoever runs there as
// another user: weftd, an agent, a rank. A link on the way to the folder is followed, since people
// put runs on other disks so; below it none is, unless it stands in a folder that this user alone
// can write. Standard library alone, for the shim's sake.
#pragma once
#include <sys/stat.h>

#include <string>

namespace weft {

// An EntryPath says which part of a path others may have a hand in: all of `name`.
struct EntryPath {
  std::string folder;  // the run folder, for instance
  std::string name;    // below it: "lock", "logs/generation-1/rank-0.log"
  std::string text() const { return folder + "/" + name; }
};
// `path` as what lies below `folder`; where it does not, or `folder` is empty, as what lies in the
// folder that it names.
EntryPath EntryOf(const std::string& path, const std::string& folder = "");
// `path` as what lies below the run folder, in whose folder `logs` it is; else as EntryOf.
EntryPath LogEntryOf(const std::string& path);

enum class EntryUse {
  kRead,     // what is there
  kShow,     // the same, for another's eyes: a link is never followed, and it is a regular file
  kAppend,   // read, and written at its end; made if need be
  kLock,     // read and written; made if need be
  kRewrite,  // written from its beginning, emptied before; made if need be
  kCreate,   // written; nothing of the name may be there
};

struct OpenedEntry {
  int descriptor = -1;  // close-on-exec, and the caller's to close; -1: it is not opened
  int error = 0;        // an errno: ELOOP is a link in the way, EPERM another refusal
  std::string why;      // "Permission denied"; "is a symbolic link ...; remove it"
  bool ok() const { return descriptor >= 0; }
};

// Opens a file. In a folder of another user it is a regular file, of this user or of the folder's
// owner, and none of this user's that has another name elsewhere (a hard link). `mode`: of a file
// that is made, less the umask. Never waits for a pipe's other end.
OpenedEntry OpenEntry(const EntryPath& path, EntryUse use, mode_t mode = 0644);

// Opens the folder that `path` is (O_PATH), and makes what is missing of it, 0755 less the umask;
// in a folder with a default access control list as that says.
OpenedEntry MakeEntryFolder(const EntryPath& path);
// Opens the folder that holds the entry (O_PATH), for renameat.
OpenedEntry OpenFolderOf(const EntryPath& path);
// Removes a file, or a link itself; nothing is said where that fails.
void RemoveEntry(const EntryPath& path);

// Makes the folder and its missing parents, no wider than 0755 whatever the umask. Links are
// followed. 0, or an errno.
int MakeFolder(const std::string& path);

}  // namespace weft
