// Some linear layers of a block are computed as one: q, k and v, and gate and up. They take the
// same input, so one product reads it once, forward and for the gradients of the weights, and one
// product makes its gradient, which several would have to add up in memory.
//
// The weights of such layers are one matrix [outputs of all, inputs], their biases one row; outputs
// are columns of one buffer, in the same order. Checkpoints know the tensors by name as ever. Pure.
#pragma once
#include <cstdint>

#include "absl/types/span.h"
#include "plan/block/block_ops.h"
#include "plan/shards/buckets.h"
#include "plan/spec/fp8.h"
#include "plan/spec/model.h"

namespace weft {

struct FusedLinears {
  bool qkv = false;
  bool gate_up = false;
};

// Returns what a block's operations let be one product (BlockOp::joint).
FusedLinears JointsOf(const BlockOps& block);

// Returns the layers whose tensors are one run in these buckets of a rank. There may be gaps: each
// tensor starts on a multiple of BucketUnit, which the narrow ones of small models miss, and more
// of them with optimizer states of 8 bits.
FusedLinears LinearsOfOneRun(absl::Span<const Bucket> buckets);

// Returns the layers of `runs` that are fused, of `joints` alone. In 8 bits their weights then have
// one scale, and so have the gradients of their outputs: a scale for each would lie within the sum
// that makes the gradient of the input, where no product takes one. q, k and v stay apart where not
// all of them are in 8 bits, and where cuDNN is asked about packed documents: it places the
// gradients of heads that share keys by where those of the keys lie, so that columns of a wider
// matrix would take as much more memory.
FusedLinears FusedLinearsOf(const FusedLinears& joints, const FusedLinears& runs,
                            const Fp8Layers& fp8, bool asks_cudnn_of_documents);

// Returns the operations of a block with these layers fused (plan/block/block_ops).
BlockOps FusedOpsOf(const ModelShape& model, int64_t block, const FusedLinears& fused);

}  // namespace weft
