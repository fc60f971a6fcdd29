// Batches: the tokens that this rank reads at a step. Which samples they are is plan/batch_order,
// what a sample is data/sampling; here they become the flat arrays of Stage::Begin. Only the first
// stage needs ids and only the last needs targets. Used by the trainer's thread.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "data/sampling.h"
#include "plan/layout.h"
#include "worker/groups.h"

namespace weft {

class Batches {
 public:
  // Borrows `groups` for the construction only.
  Batches(Dataset dataset, int64_t seq_len, const RankGroups& groups);

  // Reads all microbatches of `step` (counts from 1). Errors are Dataset::Sample's.
  absl::Status Read(int64_t step);

  // Of the step read last, [num_microbatches * B * T]; empty where the stage has no use for them.
  absl::Span<const int32_t> ids() const { return needs_ids_ ? ids_ : absl::Span<const int32_t>(); }
  absl::Span<const int32_t> targets() const {
    return needs_targets_ ? targets_ : absl::Span<const int32_t>();
  }

  const Dataset& dataset() const { return dataset_; }

 private:
  Dataset dataset_;
  const Layout layout_;
  const int64_t seq_len_;
  const int dp_index_;
  const bool needs_ids_;
  const bool needs_targets_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> targets_;
};

}  // namespace weft
