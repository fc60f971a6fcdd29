// The one place that turns CUDA's codes into statuses.
#pragma once
#include <cuda_runtime.h>

#include "worker/backend/device.h"

namespace weft {

// `what` failed with `code`: the cause by name and what to do about it. OK if there is no error.
BackendStatus FromCuda(cudaError_t code, const char* what);

}  // namespace weft
