// PassCost says what one microbatch takes in a block, in the embedding and in the head, by term.
// Pure.
#pragma once
#include "plan/estimate/block_share.h"
#include "plan/estimate/kernel_time.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/question.h"
#include "plan/estimate/term_seconds.h"
#include "plan/spec/layout.h"

namespace weft {

// One microbatch through a part of the network on one rank.
struct PassCost {
  TermSeconds forward;
  TermSeconds backward;          // input and weight gradients, recompute included
  double weight_gradient_s = 0;  // of backward: what ZB-H1 may move
  double total_s() const { return forward.total_s() + backward.total_s(); }
};

// A block computes this whatever it recomputes and however its tokens are shared over tp: the dear
// part of its price, and what it follows from, for those who ask about many layouts. Depends on tp,
// ep, the experts' tp and the tokens of a rank: micro_batch_size over cp.
struct BlockCompute {
  Machine machine;
  BlockShare share;
  LinearSeconds matmul;
  double attention_forward_s = 0, attention_backward_s = 0;
};
BlockCompute BlockComputeOf(const Question& question, const Layout& layout);

// Depend on tp, cp, ep, sequence_parallel, micro_batch_size and head_chunks of the layout alone
// (and on where the groups lie: dp and pp only through the node borders they cross).
PassCost BlockPass(const Question& question, const Layout& layout, Recompute recompute);
// `compute`: of a layout that differs in sequence_parallel at most.
PassCost BlockPass(const Question& question, const Layout& layout, Recompute recompute,
                   const BlockCompute& compute);
// Returns what codes of a block's weights in 8 bits take in a step, which no pass has: they are
// made once where they are kept (plan/spec/fp8.h), else before each product.
TermSeconds CodesOfWeights(const Question& question, const Layout& layout, Recompute recompute);
PassCost EmbeddingPass(const Question& question, const Layout& layout);
PassCost HeadPass(const Question& question, const Layout& layout);

// A microbatch's activations to the next stage, one way.
double BoundarySeconds(const Question& question, const Layout& layout);

// Returns what of it is waited for: all, or, where interleaved chunks hide transfers, what outlasts
// the forward pass of a chunk, `chunk_s`. The first microbatch's way through the stages, which has
// nothing to hide behind, is left out.
double WaitedBoundarySeconds(const Question& question, const Layout& layout, double chunk_s);
bool ChunksHideTransfers(const Question& question, const Layout& layout);

}  // namespace weft
