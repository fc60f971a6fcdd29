// The kernels of the CUDA backend, one family per .cu file, behind functions that queue them on a
// stream; shapes are checked by the caller (device_cuda.cc). Each is what device.h says of the
// operation of the same name, and the CPU backend's function of that name defines it.
//
// Activations and weights are of one element type per call (f32, bf16, f16), statistics and the
// gradients of weights are f32. Sums over rows or columns are taken in double, of runs of a few
// elements in float at most (gradients of a norm's weights: of 128 rows), and in an order that
// depends on the shape alone: no atomics, so the same call gives the same bits on any device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

class Graphs;

// Where kernels are queued, and memory for what they hand on to each other. Calls on one stream
// run in order, so all share it.
struct Queue {
  cudaStream_t stream = nullptr;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  Graphs* graphs = nullptr;  // that the stream's work is kept as; null: none
  // The device was opened because no other is visible, under a local index that is not its own, by
  // a rank that was not told to share it: another rank may have come to it too.
  bool is_of_only_device = false;
};

// elementwise.cu
cudaError_t QueueAdd(const Queue& queue, View x, View y);
cudaError_t QueueCopy(const Queue& queue, View from, View to);     // of one type
cudaError_t QueueConvert(const Queue& queue, View from, View to);  // Copy between types
cudaError_t QueueScale(const Queue& queue, double factor, View x);
cudaError_t QueueAddBias(const Queue& queue, View bias, View x);
cudaError_t QueueRotate(const Queue& queue, View table, Turn turn, const RotatedHeads& heads,
                        View x);

// activation.cu
cudaError_t QueueActivate(const Queue& queue, PlainActivation f, View x, View y);
cudaError_t QueueActivateGradient(const Queue& queue, PlainActivation f, View dy, View x, View dx);
cudaError_t QueueCap(const Queue& queue, View x, double cap);
cudaError_t QueueGelu(const Queue& queue, View x, View y);
cudaError_t QueueGeluGradient(const Queue& queue, View dy, View x, View dx);
cudaError_t QueueGlu(const Queue& queue, Gate f, View gate, View up, View y);
cudaError_t QueueGluGradient(const Queue& queue, Gate f, View dy, View gate, View up, View dgate,
                             View dup);

// norm.cu
cudaError_t QueueLayerNorm(const Queue& queue, View x, View weight, View bias,
                           const NormConstants& constants, View y, View mean, View rstd);
cudaError_t QueueLayerNormGradient(const Queue& queue, View dy, View x, View weight,
                                   const NormConstants& constants, View mean, View rstd, View dx,
                                   View dweight, View dbias);
cudaError_t QueueRmsNorm(const Queue& queue, View x, View weight, const NormConstants& constants,
                         View y, View rstd);
cudaError_t QueueRmsNormGradient(const Queue& queue, View dy, View x, View weight,
                                 const NormConstants& constants, View rstd, View dx, View dweight);

// column_sums.cu: each adds to what the sums hold
cudaError_t QueueBiasGradient(const Queue& queue, View dy, View dbias);
// Squares of scale * gradient, a run of rows as wide as cols; it starts `shift` into the first one.
cudaError_t QueueColumnSquares(const Queue& queue, View scale, View gradient, int64_t shift,
                               View cols);
// Gradients of a norm's weight and bias alone.
cudaError_t QueueLayerNormWeightGradient(const Queue& queue, View dy, View x, View mean, View rstd,
                                         View dweight, View dbias);
cudaError_t QueueRmsNormWeightGradient(const Queue& queue, View dy, View x, View rstd,
                                       View dweight);
// partials [chunks, sums, cols] of 1 or 2 sums, of which the second is left out where `second` has
// no data: over the chunks, in double, in an order that depends on their number alone.
cudaError_t QueueAddPartialSums(const Queue& queue, const float* partials, int64_t chunks,
                                int64_t sums, View first, View second);

// embedding.cu: positions and dpositions may have no data
cudaError_t QueueEmbed(const Queue& queue, View ids, View table, int64_t first_id, View positions,
                       View position_ids, View out);
cudaError_t QueueEmbedGradient(const Queue& queue, View ids, View dout, int64_t first_id,
                               View position_ids, View dtable, View dpositions);

// cross_entropy.cu
cudaError_t QueueRowMax(const Queue& queue, View logits, View row_max);
cudaError_t QueueRowSumExp(const Queue& queue, View logits, View row_max, View targets,
                           int64_t first_id, const LossTerms& loss, View row_sum,
                           View target_logit);
cudaError_t QueueSoftmaxGradient(const Queue& queue, View row_max, View row_sum, View targets,
                                 int64_t first_id, const LossTerms& loss, View logits);
cudaError_t QueueCrossEntropy(const Queue& queue, View targets, const LossTerms& loss, View logits,
                              View row_max, View row_sum, View target_logit);

// totals.cu: each adds to what the total holds
cudaError_t QueueAddLossSum(const Queue& queue, View row_max, View row_sum, View target_logit,
                            const LossTerms& loss, View total);
// Views of one type.
cudaError_t QueueAddSumOfSquares(const Queue& queue, const View* xs, int64_t count, View total);
cudaError_t QueueGradientScale(const Queue& queue, const ClipParameters& clip, View loss,
                               View squares, View scale);

// fp8.cu: REQUIRES FitsToFp8 (worker/backend/fp8.h)
cudaError_t QueueToFp8(const Queue& queue, View x, View codes, View transposed, View scale);

// attention.cu
struct AttentionTensors {
  View q, k, v;
  View first_visible;  // null data: 0 for all
  View o, lse;
};
enum class AttentionPass { kForward, kBackward };
struct AttentionGradientTensors {
  View dout, dq, dk, dv;
};
cudaError_t QueueAttention(const Queue& queue, const AttentionShape& shape,
                           const AttentionTensors& views);
cudaError_t QueueAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                   const AttentionTensors& views,
                                   const AttentionGradientTensors& gradients);

// documents.cu: of shape.documents documents, which follow each other and of which there may be
// fewer: those then have no tokens and lie at the end. Counted in elements.
struct DocumentTable {
  int32_t* lengths;            // [documents], in tokens
  int64_t* query_offsets;      // [documents + 1], as the next two: in rows of H*E,
  int64_t* key_offsets;        // of K*E,
  int64_t* statistic_offsets;  // and of H
};
// REQUIRES: shape.documents > 0 and what device.h says of it.
cudaError_t QueueDocumentTable(const Queue& queue, const AttentionShape& shape, View first_visible,
                               const DocumentTable& table);

}  // namespace weft
