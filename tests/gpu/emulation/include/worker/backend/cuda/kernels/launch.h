// Stands in for worker/backend/cuda/kernels/launch.h where kernels run on the CPU (threads.h).
#pragma once
#include <cuda_runtime.h>
#include <xmmintrin.h>

#include <cstddef>
#include <cstdint>

namespace weft {

struct Grid {
  int64_t blocks = 1;
  int64_t blocks_y = 1;
  int64_t blocks_z = 1;
  int threads = 256;
  int64_t shared_bytes = 0;
};

template <typename T>
T* DynamicShared() {
  return static_cast<T*>(emulation::SharedMemory());
}

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                   Arguments... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return cudaSuccess;
  if (grid.blocks > 0x7fffffff || grid.blocks_y > 65535 || grid.blocks_z > 65535 ||
      grid.threads > 1024 || grid.shared_bytes > emulation::shared_bytes_of_a_block) {
    return cudaErrorInvalidValue;
  }
  return emulation::QueueWork(stream, [=] {
    const auto number = [](int64_t value) { return static_cast<unsigned>(value); };
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);  // kernels are compiled to flush denormals
    emulation::RunGrid({number(grid.blocks), number(grid.blocks_y), number(grid.blocks_z)},
                       {number(grid.threads), 1, 1}, static_cast<size_t>(grid.shared_bytes),
                       [&] { kernel(static_cast<Parameters>(arguments)...); });
    _mm_setcsr(mode);
  });
}

}  // namespace weft
