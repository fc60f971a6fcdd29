// BlockShare says what one rank holds of a block, for the time model, as plain numbers: no list of
// tensors, no allocation. Pure.
#pragma once
#include "plan/estimate/question.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

// Index 0 of a tensor-parallel group, which takes any remainder, holds this share of a block.
struct BlockShare {
  double width = 0;      // D
  double query = 0;      // columns of q: heads * head_dim / tp
  double key_value = 0;  // columns of k, and of v; at least one head's
  double heads = 0;
  double up = 0;       // columns of the first feed-forward layer: gate and up where gated
  double inner = 0;    // rows of the second
  double experts = 0;  // on this rank; 0: dense
  double top_k = 0;
  double expert_up = 0, expert_inner = 0;  // of one expert
};
BlockShare ShareOf(const ModelShape& model, const Layout& layout);

}  // namespace weft
