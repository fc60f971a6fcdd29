// This file says what this machine has, as the kernel counts it for us: within our control group,
// not the host's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Bytes that new processes of ours can still take: the least of MemAvailable and what the memory
// limits of our control group (v2 or v1) leave. Nothing if the kernel does not say.
std::optional<int64_t> AvailableMemoryBytes();

// Bytes that this machine has for us, used or not: the least of MemTotal and the memory limits of
// our control group.
std::optional<int64_t> TotalMemoryBytes();

// Cores that our processes may use: the least of our affinity and the quota of our control group,
// rounded up; at least 1.
int UsableCores();

std::string HostName();

// Names the machine as an agent of that name sees it: two that get the same name find the same
// processes (the boot's id, the namespace of process numbers, and the host's name, by which an
// agent knows its own; launcher/machine/leftovers.h).
std::string MachineId(const std::string& host);

// Processes that wanted to run, mean of the last minute; nothing if the kernel does not say.
std::optional<double> LoadAverage();

// The same from files below `root` instead of / (tests).
std::optional<int64_t> AvailableMemoryBytesBelow(const std::string& root);
std::optional<int64_t> TotalMemoryBytesBelow(const std::string& root);
int UsableCoresBelow(const std::string& root, int affinity);

// Processes and threads that the control groups allow, of the one that has the fewest left.
struct TasksAllowed {
  int64_t most = 0;
  int64_t taken = 0;
};
std::optional<TasksAllowed> TasksOfGroup();
std::optional<TasksAllowed> TasksOfGroupBelow(const std::string& root);

// Threads of all processes of a user, as ulimit -u counts them.
int64_t TasksOfUser(uint32_t user);

}  // namespace weft
