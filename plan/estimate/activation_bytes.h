// Closed forms give the bytes that one block, the embedding and the head keep for backward, and
// need while backward works on them (Korthikanti et al., arXiv:2205.05198, 4; extended to grouped
// kv heads, gated and sparse feed-forwards, context parallelism, fused attention). Doubles: absurd
// questions must not overflow. No allocation. Pure.
#pragma once
#include "plan/estimate/question.h"
#include "plan/spec/layout.h"

namespace weft {

// Holds the bytes of one block and one microbatch on one rank.
struct BlockFootprint {
  double saved = 0;       // from forward to backward, under the recompute mode
  double recomputed = 0;  // more of them, while backward works on the block
  double backward = 0;    // gradients, gathered inputs, casts: largest sum at once
  double pending = 0;     // kept beyond backward where the weight gradient is put off (zb_h1)
};
BlockFootprint BlockActivationBytes(const Question& question, const Layout& layout,
                                    Recompute recompute);

// Holds the bytes of one microbatch on the last stage.
struct HeadActivations {
  double saved = 0;   // final norm's input and output, from forward to backward
  double logits = 0;  // logits, softmax and their gradient
};
HeadActivations HeadActivationBytes(const Question& question, const Layout& layout);

// Beside its first block's input: the mask of its dropout.
double EmbeddingActivationBytes(const Question& question, const Layout& layout);

// One [N, D] tensor at a stage's border: [B, T / cp, D], cut over tp where sequence parallel.
double BoundaryBytes(const Question& question, const Layout& layout);

// Tokens of a microbatch on one rank: B * T / cp.
double LocalTokens(const Question& question, const Layout& layout);

// Counts what a schedule holds at once on a stage.
struct InFlight {
  double block_passes = 0;  // blocks times microbatches
  double microbatches = 0;  // of the stage as a whole; chunks count as shares
  double chunk_blocks = 0;  // blocks of the pass that ends first
  double pending = 0;       // blocks times microbatches whose weight gradient is put off
};
InFlight InFlightOf(const Question& question, const Layout& layout, int stage);

}  // namespace weft
