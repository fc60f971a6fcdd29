// What this machine has, as the kernel counts it for us: within our control group, not the host's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Bytes that new processes of ours can still take: the least of MemAvailable and what the memory
// limits of our control group (v2 or v1) leave. Nothing if the kernel does not say.
std::optional<int64_t> AvailableMemoryBytes();

// The same from files below `root` instead of / (tests).
std::optional<int64_t> AvailableMemoryBytesBelow(const std::string& root);

}  // namespace weft
