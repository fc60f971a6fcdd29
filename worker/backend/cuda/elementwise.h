// Elementwise operations on device memory, queued on a stream: the first family of kernels. Each
// is what device.h says of the operation of the same name; the CPU backend defines it.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

// y += x
cudaError_t QueueAdd(const float* x, float* y, int64_t count, cudaStream_t stream);
// x *= factor
cudaError_t QueueScale(float factor, float* x, int64_t count, cudaStream_t stream);
// x[r, c] += bias[c]
cudaError_t QueueAddBias(const float* bias, float* x, int64_t rows, int64_t cols,
                         cudaStream_t stream);

}  // namespace weft
