// Stands in for worker/backend/cuda/kernels/copy_async.h where kernels run on the CPU (threads.h).
// In Order::kAscending a copy is done at once, in Order::kDescending when its thread waits for it:
// what reads without waiting, and what is copied over while others still read it, differs between
// the two.
#pragma once
#include <cuda_runtime.h>

namespace weft {

void CopyAsync16(void* to, const void* from, bool is_there);
void WaitForCopies();

}  // namespace weft
