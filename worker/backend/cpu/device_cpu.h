// The CPU device: the living definition of every operation of device.h. Matrix products by
// OpenBLAS and oneDNN, the rest plain loops (kernels.h), all on as many threads as the options say:
// the bits of what is not a product do not depend on how many these are.
//
// The BLAS thread count is a setting of the whole process, taken from the last device opened.
#pragma once
#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/device.h"

namespace weft {

// Flushes denormals (FTZ, DAZ) on the calling thread, which is the one that uses the device, and on
// those that help it.
std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options);

}  // namespace weft
