// Host memory for the arena, and what the machine (or its container) has of it and of processors.
#pragma once
#include <cstdint>

namespace weft {

// Zeroed memory, aligned to 2 MiB, on huge pages where the kernel gives them (up to 1.8 times the
// speed of large products); null if the machine has not that much left.
void* MapMemory(int64_t bytes);
void UnmapMemory(void* data, int64_t bytes);

// Returns what this process may use: the machine's memory or its control group's limit.
int64_t MemoryLimitBytes();
// Returns what of that is free or can be reclaimed now.
int64_t AvailableMemoryBytes();
// Processors in this process's affinity mask.
int ProcessorCount();

}  // namespace weft
