// Users whom this one lets into a folder of its own: who has submitted a run reads what is in its
// folder, and those as whom its agents and ranks run write there, too. The folder's access control
// list (POSIX ACL) says so, so that it holds under any umask, is seen by getfacl, and goes with the
// folder. What is made in it has the same users, and this one, whoever makes it.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>

#include "process/folder_entry.h"

namespace weft {

struct FolderUsers {
  std::set<uid_t> readers = {};  // may read what is in it
  std::set<uid_t> writers = {};  // may also make, change and remove it
  bool empty() const { return readers.empty() && writers.empty(); }
  std::set<uid_t> all() const;
};

// Makes `folder` as one of this user's for `users`, who may pass through those parents that are
// made for it, or were made so for others. 0, or an errno; EEXIST: it is there, behind parents
// that they may pass now. Where the file system keeps no lists (NFS 4), readers have what the umask
// leaves, and writers come in by their primary group, if all have one and this user is in it;
// EOPNOTSUPP: they do not.
int MakeFolderFor(const FolderUsers& users, const std::string& folder);

// Lets them into a folder of this user's, beside those who may already. Errors as MakeFolderFor's;
// EPERM: it is another user's.
int LetIn(const FolderUsers& users, const EntryPath& folder);

// Whether others have been let in there, by the folder's list or by its group.
bool IsMadeForOthers(const std::string& folder);

// Returns those whom the list of `folder` names; none: it names nobody, or is not there.
FolderUsers UsersOf(const std::string& folder);

// Lets `readers` read a file of this user's that is open, and no group and nobody else. None: the
// file stays as it is.
void LetRead(const std::set<uid_t>& readers, int file);

}  // namespace weft
