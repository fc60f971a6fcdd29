// The memory of this host's GPUs, as NVML tells it: NVIDIA's management library, which comes with
// the driver and needs no context on a device. It is loaded at run time; where it is not there,
// or does not know a device, nothing is said of it.
#pragma once
#include <string>

#include "absl/types/span.h"
#include "proto/agent.pb.h"

namespace weft {

inline constexpr char kNvml[] = "libnvidia-ml.so.1";

// Fills in memory, what is free and who holds the rest, of each GPU that `host` has by its PCI
// address. Without GPUs the library is not touched. It may take a second where no process keeps
// the driver awake.
void DescribeGpuMemory(const std::string& library, proto::Host* host);

// Finds the GPU with the least free memory among those that are slots of `used` (none: all); null:
// that of none is known.
const proto::Gpu* PoorestGpu(const proto::Host& host, absl::Span<const int> used);

// "GPU 0000:3b:00.0 has 60.0 GiB of 79.6 GiB free; process 4711 (python3) holds 18.0 GiB"
std::string GpuMemoryText(const proto::Gpu& gpu);

}  // namespace weft
