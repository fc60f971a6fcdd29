// Every process of a run carries the run's id in its environment (WEFT_RUN), so that what a crash
// left behind can be found: processes of this user with that very id, and the run's temporary
// folder. Reads /proc.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

inline constexpr char kRunVariable[] = "WEFT_RUN";

// Living processes of this user whose environment holds WEFT_RUN=<run_id>; not this process.
std::vector<pid_t> ProcessesOf(const std::string& run_id);

// KILLs them until there are none; gives up after `patience_ms`. Returns how many there were.
// `except`: a process that is to live (the run's own weftd); 0: none.
int KillProcessesOf(const std::string& run_id, pid_t except, int patience_ms);

// A rank is given this much of a machine's shared memory: Open MPI maps a segment of 4 MiB and some
// queues.
inline constexpr int64_t kSharedBytesPerRank = int64_t{16} << 20;

// A folder for Open MPI's session and shared-memory files: short, in memory if there is room for
// `world_size` ranks, else under /tmp.
std::string TemporaryFolder(const std::string& run_id, int world_size);

// Removes the temporary folders that a run may have had.
void RemoveTemporaryFolders(const std::string& run_id);

// Temporary folders of this user's runs that no living process is of any more.
std::vector<std::string> TemporaryFoldersLeft();

}  // namespace weft
