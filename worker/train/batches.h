// Batches: the tokens that this rank reads at a step. Which samples they are is
// plan/shards/batch_order, what a sample is data/sampling, where its documents start
// data/documents; here they become the flat arrays of Stage::Begin. Each rank reads its own: only
// the first stage needs ids and only the last targets, but all need to know the documents where
// attention stays within them. Used by the trainer's thread.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "data/sampling.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"
#include "worker/model/stage.h"
#include "worker/state/groups.h"

namespace weft {

class Batches {
 public:
  // Borrows `groups` for the construction only.
  Batches(Dataset dataset, const JobSpec& job, const RankGroups& groups);

  // Reads all microbatches of `step` (counts from 1). Errors are Dataset::Sample's.
  absl::Status Read(int64_t step);
  // The same while nobody needs it yet: Read(step) then has nothing left to do. Where it fails,
  // that Read tries again and says why. tokens() are those of `step` from now on.
  void ReadAhead(int64_t step);

  // Returns the tokens of the step that Read read last.
  StepTokens tokens() const {
    return {ids_, targets_, positions_, first_visible_, first_in_window_};
  }

  const Dataset& dataset() const { return dataset_; }

 private:
  // Windows of attention alone are the same in every sample.
  bool reads_samples() const { return needs_ids_ || needs_targets_ || needs_first_visible_; }
  absl::Status ReadSample(int64_t index);
  void AppendHeldPositions();  // of the window

  Dataset dataset_;
  const Layout layout_;
  const DataSpec data_;
  const int64_t seq_len_;
  const int dp_index_;
  const std::vector<int64_t> held_positions_;  // of each sequence, those of this rank
  const bool needs_ids_;
  const bool needs_targets_;
  const bool needs_positions_;
  const bool needs_first_visible_;
  const int64_t window_;   // the model's; 0: it hides nothing
  int64_t held_step_ = 0;  // whose tokens are all there; 0: none's
  std::vector<int32_t> ids_, targets_, positions_, first_visible_, first_in_window_;
  // The sample being read [T]; allocated once, as everything that a step needs.
  std::vector<int32_t> window_ids_, window_targets_, window_starts_;
};

}  // namespace weft
