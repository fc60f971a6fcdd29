// Causal attention and its gradient as graphs for cuDNN, which knows both as a whole and makes one
// fused kernel of each. Strides say where heads lie in the rows of q, k and v: nothing is permuted.
// A graph computes one part of a call; of several, each has statistics of its own, [B, H, queries].
//
// Documents that do not see each other are the elements of the graph's batch: tensors that start
// where the document does (cuDNN's ragged offsets), lengths that mask what lies behind it and cut
// products. Tensors that the kernels keep by token, not by document and position, are all in memory
// of ours, or they would have room for as many whole sequences as there are documents: statistics
// and sums of dO * O lie [N, H], all else as q does (the order of cuDNN's frontend when it is told
// the number of tokens, which TransformerEngine does; another has not been tried on a device).
#pragma once
#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "worker/backend/cuda/attention/attention_parts.h"
#include "worker/backend/cuda/attention/cudnn_graph.h"
#include "worker/backend/cuda/attention/cudnn_library.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// Ids of the tensors that the graphs do not hold themselves. Beside those of device.h: the sums of
// dO * O [B*H, T], and dq before it is rounded [B*H, T, E], both f32 and scratch. The gradient's
// kernel adds to the latter, which cuDNN clears itself since 9.6 (its frontend, NVIDIA's own user
// of these graphs, clears it for older ones alone). Of documents: a DocumentTable, and where heads
// share keys the gradients of each head's, which are added up in a kernel of their own.
enum class AttentionTensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kOutputSums,
  kDqSums,
  kScale,          // host: 1 / sqrt(E)
  kMinusInfinity,  // host
  kOne,            // host
  // The diagonal of the mask is moved by these where queries are fewer than the keys they see:
  kQueryCount,  // host, 32-bit integers
  kKeyCount,
  // With documents:
  kQueryLengths,
  kKeyLengths,
  kQueryOffsets,
  kKeyOffsets,
  kStatisticOffsets,
  kDkOfHeads,
  kDvOfHeads,
};

// How a part's scratch memory is cut: the table of its documents, of a gradient kDqSums,
// kOutputSums, kDkOfHeads and kDvOfHeads, kDk and kDv if they are to be added, and the plan's own
// workspace. Each may be empty. Parts follow each other, so all are given the same memory.
struct AttentionScratch {
  AttentionScratch(AttentionPass pass, const AttentionShape& shape, const AttentionPart& part);

  // Where scratch begins in memory of which the arena's alignment is all that is known.
  static char* Start(View scratch);
  // REQUIRES: the shape has documents.
  DocumentTable TableAt(char* start) const;

  int64_t query_offsets_at;  // behind the lengths
  int64_t key_offsets_at;
  int64_t statistic_offsets_at;
  int64_t dq_sums_at;
  int64_t output_sums_at;
  int64_t dk_of_heads_at;
  int64_t dv_of_heads_at;
  int64_t dk_to_add_at;
  int64_t dv_to_add_at;
  int64_t workspace_at;
};

// Returns how much memory such a part must be given.
int64_t CudnnScratchBytes(AttentionPass pass, const AttentionShape& shape,
                          const AttentionPart& part, int64_t workspace_bytes);

// Plans a part of such calls of Device::Attention or AttentionGradient: one that makes do with
// `scratch_bytes` of scratch memory if there is any, else the one that needs least.
// Unimplemented, with cuDNN's words, for what it does not take. REQUIRES: elements of 16 bits, a
// part of PartsOf(shape), shape.documents is 0 where none are masked, which they are in whole
// sequences alone.
BackendStatus PlanAttention(const CudnnLibrary& library, const CudnnTarget& target,
                            AttentionPass pass, const AttentionShape& shape,
                            const AttentionPart& part, DType dtype, int64_t scratch_bytes,
                            std::unique_ptr<CudnnGraph>* plan);

}  // namespace weft
