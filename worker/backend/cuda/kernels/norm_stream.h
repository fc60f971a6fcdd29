// Norms of rows that consist of packs of 16 bytes and are not too long: a fixed number of blocks
// walks the rows, and while a row is worked on the next one is on its way into shared memory, so
// that bytes are in flight all the time, whatever the length of a row. norm.cu has the others.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// Whether norms of x stream, with these tensors beside it.
bool StreamsRows(View x, std::initializer_list<View> others);

// LayerNorm, or RmsNorm where mean has no data. REQUIRES: StreamsRows.
cudaError_t QueueStreamedNorm(const Queue& queue, View x, View weight, View bias,
                              const NormConstants& constants, View y, View mean, View rstd);

// dx, dweight and dbias, as LayerNormGradient adds to them; or as RmsNormGradient where mean has no
// data. REQUIRES: StreamsRows.
cudaError_t QueueStreamedNormGradient(const Queue& queue, View dy, View x, View weight,
                                      double offset, View mean, View rstd, View dx, View dweight,
                                      View dbias);

}  // namespace weft
