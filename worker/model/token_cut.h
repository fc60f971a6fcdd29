// TokenCut: sequence parallelism (Korthikanti et al., arXiv:2205.05198, 4.2.2) as embedding, blocks
// and head see it. Tensor-parallel products take all N tokens of a microbatch; around them, where
// residuals, norms and biases work on rows, each tp rank holds R = N / tp tokens: rows
// [i * R, (i + 1) * R) of the i-th rank. What a product takes is gathered, what it gives is
// reduce-scattered, which together move what the all-reduce of a layout without it moves.
//
// In such a layout (Layout::sequence_ranks() of 1) R is N: parts are wholes and sums are
// all-reduces in place. Used by the trainer's thread.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"
#include "worker/state/groups.h"

namespace weft {

class TokenCut {
 public:
  // For residuals of `rows` = N tokens and width D = `cols`. Borrows `device` and `groups`.
  TokenCut(int64_t rows, int64_t cols, Arena& arena, Device& device, RankGroups& groups);

  int64_t part_rows() const { return part_rows_; }  // R

  // All tokens [N, D] of `part` [R, D]. They lie in a buffer that the next call of any of these
  // functions may overwrite, or, uncut, are `part` itself.
  absl::StatusOr<View> Gather(View part);

  // Where to write the [N, D] whose sum over tp shall become `part` [R, D], by the call of Sum that
  // follows.
  View Partial(View part) const;
  absl::Status Sum(View part);

  // Sums `whole` [N, D] over tp in place and returns this rank's rows of it [R, D]; the others are
  // unspecified then.
  absl::StatusOr<View> SumOwn(View whole);

  // Gather and SumOwn in two halves each, between which the device goes on with other work: the
  // buffers that they name, that of gathered tokens too, are not touched meanwhile.
  absl::Status StartGather(View part);
  absl::StatusOr<View> EndGather(View part);
  absl::Status StartSumOwn(View whole);
  absl::StatusOr<View> EndSumOwn(View whole);

 private:
  bool is_cut() const { return gathered_.data != nullptr; }
  View OwnRows(View whole) const;

  Device& device_;
  RankGroups& groups_;
  const int64_t part_rows_;
  View gathered_;  // [N, D]; null if the layout does not cut
};

}  // namespace weft
