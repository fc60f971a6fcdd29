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
  double value = 0;      // rows of attention's last layer: heads times a value's size
  double heads = 0;
  // Latent attention makes queries, and keys and values, of so much, whole on each rank, the latter
  // by a layer of kv_up columns. 0 elsewhere.
  double query_rank = 0, kv_down = 0, kv_rank = 0, kv_up = 0;
  double up = 0;       // columns of the first feed-forward layer: gate and up where gated
  double inner = 0;    // rows of the second; with experts these two are of what is shared
  double experts = 0;  // on this rank; 0: dense
  // Experts that a token of this rank is sent to, times the share of its tokens that this rank has
  // to send and the load of the fullest rank.
  double copies = 0;
  double expert_up = 0, expert_inner = 0;  // of one expert

  // Tensors that products of all tokens read, and sums of terms that are added to residuals.
  double gathered = 2, summed = 2;

  // The same under sequence parallelism, where experts take their own tokens: attention's, and
  // those of a feed-forward that all tokens pass.
  double gathered_parts() const { return experts > 0 && inner == 0 ? 1 : gathered; }
  double summed_parts() const { return experts > 0 && inner == 0 ? 1 : summed; }
  // Columns of what attention works on: queries, keys and values.
  double attended() const { return kv_rank > 0 ? 2 * query + value : query + 2 * key_value; }
};
BlockShare ShareOf(const ModelShape& model, const Layout& layout);

}  // namespace weft
