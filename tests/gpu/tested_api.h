// The CUDA backend as a test binary has it: on a device, or on the CPU (emulation).
#pragma once
#include "worker/backend/backend.h"

namespace weft {

// Null where it needs a device and there is none, or none that works: that is a failure. Its
// devices are shared by the ranks of a test.
const BackendApi* TestedApi();

}  // namespace weft
