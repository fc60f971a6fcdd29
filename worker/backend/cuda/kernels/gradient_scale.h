// GradientScale: what the kernels of an update multiply gradients by, which is on the device
// (device.h).
#pragma once
#include <cuda_runtime.h>

#include "worker/backend/device.h"

namespace weft {

struct GradientScale {
  const double* at = nullptr;  // null: 1
  double value = 1;

  // By each thread, before anything else. False: the update changes nothing.
  __device__ bool Load() {
    if (at != nullptr) value = *at;
    return value == value;
  }
};

inline GradientScale ScaleAt(View x) {
  return {static_cast<const double*>(x.data)};
}

}  // namespace weft
