// This file says which samples of the run's global order a data-parallel rank reads at a step, and
// which part of each a context-parallel rank holds. The order itself (sample index -> window of a
// file) is data/sampling; it depends on the global sample index alone, so every layout trains on
// the same batches. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/spec/layout.h"

namespace weft {

// First sample of `microbatch` on data rank `dp_index` at `step` (steps count from 1); the
// microbatch holds the micro_batch_size samples that follow. Samples of step s are
// [(s-1)*G, s*G), G = global_batch_size.
// REQUIRES: step >= 1, 0 <= dp_index < dp, 0 <= microbatch < gradient_accumulation_steps.
int64_t FirstSample(const Layout& layout, int64_t step, int dp_index, int64_t microbatch);

// The part of each sequence that a context-parallel rank holds: of `runs` equal runs of positions
// those named, one after the other.
struct SequencePieces {
  int64_t runs = 1;
  std::vector<int64_t> pieces = {0};
};

// Returns the cp_index-th of 2 cp runs and the cp_index-th from the end, so that all ranks have as
// many pairs of query and key to attend to (Grattafiori et al., arXiv:2407.21783, 3.3.2); the whole
// sequence if cp is 1.
SequencePieces SequencePiecesOf(const Layout& layout, int cp_index);

// Returns the pieces' positions in the sequence [T / cp], in the order in which the rank holds
// them.
// REQUIRES: CheckLayout holds for seq_len.
std::vector<int64_t> PositionsOf(const Layout& layout, int64_t seq_len, int cp_index);

}  // namespace weft
