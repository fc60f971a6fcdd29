// Copies from global to shared memory that pass while the thread computes (cp.async, from compute
// capability 8.0), 16 bytes each, aligned.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

// to = *from, or zeros if it is not there; done once this thread has waited for it.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool is_there) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// For all copies of this thread. Those of others are there behind a barrier that follows.
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace weft
