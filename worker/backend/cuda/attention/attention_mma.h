// The tensor cores' way to compute attention (attention_mma.cu), taken by attention.cu where it
// serves.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/attention/attention_tile.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace weft {

// Whether it takes this call, if all heads are aligned to 16 bytes.
bool HasMmaAttention(const AttentionShape& shape, DType dtype);

// REQUIRES: HasMmaAttention(shape, tensors.q.dtype), aligned heads; here and below.
cudaError_t QueueMmaAttention(const Queue& queue, const AttentionShape& shape,
                              const AttentionTensors& tensors);
// dq, dk and dv; deltas are there already. T is __nv_bfloat16 or __half.
template <typename T>
cudaError_t QueueMmaAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                      const AttentionCall& call,
                                      const AttentionGradientArrays<T>& arrays);

}  // namespace weft
