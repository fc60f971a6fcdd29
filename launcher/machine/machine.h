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

// Names the machine as processes see it: two processes that get the same name see one another (the
// boot's id and the namespace of process numbers).
std::string MachineId();

// Processes that wanted to run, mean of the last minute; nothing if the kernel does not say.
std::optional<double> LoadAverage();

// The same from files below `root` instead of / (tests).
std::optional<int64_t> AvailableMemoryBytesBelow(const std::string& root);
std::optional<int64_t> TotalMemoryBytesBelow(const std::string& root);
int UsableCoresBelow(const std::string& root, int affinity);

}  // namespace weft
