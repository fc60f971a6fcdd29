// Attention by cuDNN: one fused kernel for each shape, compiled when the shape is first seen (0.3
// to 2.5 s) and kept; one for each run where a rank has two of each sequence (attention_parts.h).
// It takes calls of 16-bit elements, and of documents that do not see each other so many as the
// shape says, if queries are all positions; the gradient adds up dq in no fixed order, so it does
// not repeat its bits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// "9.19.0"; empty where there is none.
const char* CudnnVersion();

// Whether such a cuDNN (91900: 9.19.0) takes documents that do not see each other on a device of
// that compute capability, of which this is the major number; else Unimplemented, and why. Before
// 9.18 gradients on 9.0 are off where a document is short, as memory is not cleared
// (TransformerEngine's issue 2186). On 8.0 and 8.9 (and 12.0) it refuses statistics by token, and
// its frontend leaves out all other scratch by token for a fault. Pure.
BackendStatus CheckDocuments(int version, int capability);

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  // shape.documents of all that follows is 0 where first_visible has no data.
  //
  // Compiles what a call that is given `scratch_bytes` of scratch memory needs, once for each shape
  // and such size. FailedPrecondition where cuDNN wants more; Unimplemented for a shape that it
  // refuses, both again and again; Internal for a new one while a graph is captured.
  virtual BackendStatus Prepare(AttentionPass pass, const AttentionShape& shape, DType dtype,
                                int64_t scratch_bytes) = 0;

  // Queue the work. REQUIRES: Prepare of that pass succeeded for as much scratch; all tensors are
  // aligned to 16 bytes, as the arena's are.
  virtual BackendStatus Forward(const AttentionShape& shape, const AttentionTensors& tensors,
                                View scratch) = 0;
  virtual BackendStatus Backward(const AttentionShape& shape, const AttentionTensors& tensors,
                                 const AttentionGradientTensors& gradients, View scratch) = 0;
};

// For the current device; the queue's stream and graphs outlive it. FailedPrecondition where there
// is no cuDNN.
BackendStatus OpenCudnnAttention(const Queue& queue, std::unique_ptr<CudnnAttention>* attention);

}  // namespace weft
