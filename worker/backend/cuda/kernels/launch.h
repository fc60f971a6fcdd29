// Launch: how kernels are started, in one place, as a function call. Host code that starts kernels
// is then plain C++, so that the tests can put a stand-in for this file before it and run kernels
// where there is no device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

struct Grid {
  int64_t blocks = 1;    // of the x axis; none: nothing is started
  int64_t blocks_y = 1;  // up to 65,535, as of z
  int64_t blocks_z = 1;
  int threads = 256;         // of a block
  int64_t shared_bytes = 0;  // dynamic shared memory of a block
};

// The block's dynamic shared memory, aligned to 16 bytes.
template <typename T>
__device__ T* DynamicShared() {
  extern __shared__ float4 weft_dynamic_shared[];
  return reinterpret_cast<T*>(weft_dynamic_shared);
}

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                   Arguments... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return cudaSuccess;
  // A block has 48 KiB without asking, of which what the kernel declares itself is a part: 8 are
  // left for that.
  constexpr int64_t kSharedWithoutAsking = 40 << 10;
  if (grid.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t code = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
    if (code != cudaSuccess) return code;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y),
                        static_cast<unsigned>(grid.blocks_z));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace weft
