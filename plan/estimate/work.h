// Sizes that the time model needs, per rank, as plain numbers: no list of tensors, no allocation.
// Pure.
#pragma once
#include "plan/estimate/question.h"
#include "plan/layout.h"
#include "plan/model.h"

namespace weft {

// What one rank of a tensor-parallel group holds of a block (index 0: takes any remainder).
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

// Trained parameters of one rank, by what it holds. Equal to the sums over ShardsOf's shards of tp
// index 0 for dense models.
struct ParameterShare {
  double block = 0;          // of one block, experts excluded
  double block_experts = 0;  // of one block: experts of this rank
  double embedding = 0;
  double head = 0;       // own matrix (untied) and final norm
  double tied_copy = 0;  // of first and of last stage; 0 unless tied and pp > 1
};
ParameterShare ParametersOf(const ModelShape& model, const Layout& layout);

// Parameters of `stage` whose gradients are reduced, dense and of experts: their groups differ.
struct ReducedParameters {
  double dense = 0;
  double experts = 0;
  double total() const { return dense + experts; }
};
ReducedParameters ReducedParametersOf(const ParameterShare& share, const ModelShape& model,
                                      const Layout& layout, int stage);

// Parameters of low-rank adapters on one rank of `stage`: what is trained, and reduced.
double AdapterParametersOf(const LowRankAdapters& adapters, const ModelShape& model,
                           const Layout& layout, int stage);

}  // namespace weft
