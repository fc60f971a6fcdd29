// Work of a forward pass, from the lists of operations (plan/block/block_ops). A multiply-add
// counts as 2; the backward pass costs twice as much. Pure.
#pragma once
#include <cstdint>

#include "plan/spec/model.h"

namespace weft {

// Keys that a token sees, on average over a sequence of `seq_len`: half of them under causal
// attention (PTD-P, appendix), W - W^2 / (2 T) of a window W < T (0: none).
double VisibleKeys(int64_t window, int64_t seq_len);
// The mean of that over the model's blocks.
double MeanVisibleKeys(const ModelShape& model, int64_t seq_len);

// Returns the work of block `block`, per token at sequence length `seq_len` with causal attention
// (PTD-P, arXiv:2104.04473, appendix; attention halved for causality), with the experts that a
// token is sent to.
double BlockForwardFlopsPerToken(const ModelShape& model, int64_t block, int64_t seq_len);

// Returns that of the head, per token.
double HeadForwardFlopsPerToken(const ModelShape& model);

}  // namespace weft
