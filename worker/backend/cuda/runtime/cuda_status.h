// The one place that turns CUDA's codes into statuses.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include "worker/backend/failure.h"

namespace weft {

// `what` failed with `code`: the cause by name and what to do about it. OK if there is no error.
BackendStatus FromCuda(cudaError_t code, const char* what);
// Keeps that, if there is an error.
inline void KeepFailure(cudaError_t code, const char* what, FirstFailure& failure) {
  if (code != cudaSuccess) failure.Keep(FromCuda(code, what));
}

// Says what is wrong with a host's driver, and the cure. `served` and `needed`: the newest version
// of CUDA that it serves (0: there is no driver) and that of this build, as CUDA counts them: 13020
// is 13.2. `driver`: its own version, or empty.
std::string DriverProblem(int served, int needed, const std::string& driver);

}  // namespace weft
