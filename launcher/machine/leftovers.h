// Every process of a run carries the run's id in its environment (WEFT_RUN), and its ranks and what
// starts them their generation (WEFT_GENERATION) and the host whose agent started them (WEFT_HOST)
// too, so that what a crash left behind can be found: processes of this user with that very id, and
// the run's temporary folder. Two agents may share a machine: each looks for its own host's alone.
// Reads /proc.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "process/rank_variables.h"

namespace weft {

inline constexpr char kRunVariable[] = "WEFT_RUN";
inline constexpr char kGenerationVariable[] = "WEFT_GENERATION";

enum class ProcessKind {
  kAny,
  kOfAGeneration,  // not weftd, nor an agent
};

// Living processes of this user, or of user `also`, whose environment holds WEFT_RUN=<run_id> and,
// unless `host` is empty, WEFT_HOST=<host>; not this process.
std::vector<pid_t> ProcessesOf(const std::string& run_id, ProcessKind kind = ProcessKind::kAny,
                               const std::string& host = "",
                               std::optional<uid_t> also = std::nullopt);

// KILLs those that are there now, each through a pidfd that was opened before its environment was
// read. Returns how many there were.
int KillProcessesOnce(const std::string& run_id, ProcessKind kind, const std::string& host = "",
                      std::optional<uid_t> also = std::nullopt);
// KILLs them until there are none; gives up after `patience_ms`. Returns how many there were.
int KillProcessesOf(const std::string& run_id, ProcessKind kind, int patience_ms,
                    const std::string& host = "", std::optional<uid_t> also = std::nullopt);

// A rank is given this much of a machine's shared memory: Open MPI maps a segment of 4 MiB and some
// queues.
inline constexpr int64_t kSharedBytesPerRank = int64_t{16} << 20;
// ResourceExhausted if neither /dev/shm nor /tmp has that for each of so many ranks: whoever writes
// to a mapped file without room is killed (SIGBUS).
absl::Status CheckSharedRoom(int ranks);

// A folder for Open MPI's session and shared-memory files: short, in memory if there is room for
// `world_size` ranks, else under /tmp. An agent that was given a name has one of its own: `host`.
std::string TemporaryFolder(const std::string& run_id, int world_size,
                            const std::string& host = "");

// Makes `path` (0700) unless it is there already. FailedPrecondition if what is there is not a
// folder of this user alone: names under /tmp and /dev/shm are anybody's. One of root's may let
// others pass.
absl::Status MakePrivateFolder(const std::string& path);
// Lets processes of other users come to what is theirs in a folder of root's (0711).
absl::Status LetPass(const std::string& folder);

// All that this may ever return for the run and the host.
std::vector<std::string> TemporaryFolders(const std::string& run_id, const std::string& host = "");
// One of them, always the same as long as the machine is up: where its agent has its seat, and
// holds a lock (fcntl) on the file of that name.
inline constexpr char kSeatLock[] = "agent.lock";
std::string SeatFolder(const std::string& run_id, const std::string& host = "");

// Removes them.
void RemoveTemporaryFolders(const std::string& run_id, const std::string& host = "");

// Where the standing agent of this user on this host keeps what it has started, as long as the
// machine is up. It is no run's folder.
std::string StandingFolder(const std::string& host = "");

// Numbers of all processes but this one.
std::vector<pid_t> AllProcesses();

// Temporary folders of the run that are there, whichever host's agent has made them.
std::vector<std::string> FoldersOf(const std::string& run_id);
// Temporary folders of this user's runs that no living process is of any more, nor an agent holds.
std::vector<std::string> TemporaryFoldersLeft();

}  // namespace weft
