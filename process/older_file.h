// A file that grows without end is bounded by its writer: at some size it becomes its older file,
// "rank-0.log.1", of which there is one, and a new file takes its name. Renames alone do that: no
// line is copied, and a writer or a reader that dies at any moment leaves each line in one of the
// two. Whoever reads such a file reads both as one text. Standard library alone, for the shim's
// sake.
#pragma once
#include <cstdint>
#include <string>

#include "process/folder_entry.h"

namespace weft {

// "logs/rank-0.log" -> "logs/rank-0.log.1"
std::string OlderFileOf(const std::string& path);
// Whether `name` is the older file of another name; then that one is put into `newest`.
bool IsOlderFile(const std::string& name, std::string* newest);

// The file becomes its older one, in that one's place, and a new one is opened (kAppend). Where
// that fails, nothing has changed, and the caller goes on with the file that it has.
OpenedEntry BeginNewFile(const EntryPath& path);

// Returns the last `bytes` of a file; fewer where it has no more, or cannot be read.
std::string ReadEndOfFile(const EntryPath& path, int64_t bytes);
// The same of the file, and of its older one where the file itself has fewer.
std::string ReadEnd(const EntryPath& path, int64_t bytes);

}  // namespace weft
