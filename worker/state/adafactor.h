// Adafactor: its update of what a rank owns (adafactor_steps.h has the formulas). A tensor's sums
// of squares by row and by column, and then the norm of its update, are of the whole tensor; tp and
// ZeRO cut it, ZeRO anywhere. So each rank adds up what it owns, copies that another rank counts
// left out (TensorShard::primary), and two reductions for all tensors at once make the sums whole:
// over the ranks that share buckets, over tp, and then from who counts to who holds copies: the
// other stage of a table that two stages hold, the ranks that own the same. Copies thus get the
// bits of what they are copies of, and each rank updates its own elements. Used by the trainer's
// thread.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/spec/job_spec.h"
#include "worker/backend/adafactor_steps.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"
#include "worker/state/groups.h"
#include "worker/state/parameters.h"

namespace weft {

class Adafactor {
 public:
  // Borrows all but `model`. REQUIRES: optimizer states are kFactored.
  Adafactor(const ModelShape& model, const Parameters& parameters, Arena& arena, Device& device,
            RankGroups& groups);

  // One step, as UpdateParameters. Collective.
  absl::Status Update(const OptimizerSpec& optimizer, double lr, View gradient_scale, int64_t step);

 private:
  struct Tensor {
    FactoredView sums;     // of squares of this step's gradients
    FactoredView moments;  // of Parameter, and the mean of the rows
    View norms;            // [1, 2]
    View all_sums;         // rows and columns in one
  };

  bool Counts(const OwnPiece& piece) const;  // in sums over all ranks
  absl::Status SumOverHolders(View of_all, View of_shared_table);
  // The rows and columns of `whole` that `piece` is a run of.
  static FactoredView BoxOf(const FactoredView& whole, const OwnPiece& piece);

  const Parameters& parameters_;
  Device& device_;
  RankGroups& groups_;
  std::vector<Tensor> tensors_;  // by Parameters::all
  View square_sums_, norms_;     // of all of them
  int shared_table_ = -1;        // index of the table that another stage holds, too; -1: none
};

}  // namespace weft
