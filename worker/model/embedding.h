// Embedding: token ids to vectors, on the first stage. The table is cut by vocabulary over tp: each
// rank looks up its own ids, and the sum over tp completes the rows. Learned positions, where the
// family has them, are added once, by the first tp rank.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/token_cut.h"
#include "worker/state/groups.h"
#include "worker/state/parameters.h"

namespace weft {

// Returns what the table's rows are multiplied by, where activations are of `type`.
double EmbeddingFactor(const ModelShape& model, DType type);

class Embedding {
 public:
  // Borrows `tokens`, `device` and `groups`. REQUIRES: this rank is on the first stage.
  Embedding(const ModelShape& model, const Parameters& parameters, TokenCut& tokens, Device& device,
            RankGroups& groups);

  int bucket() const { return bucket_; }  // of its parameters

  // ids [N, 1] -> out [R, D], this rank's tokens (worker/model/token_cut.h), complete. position_ids
  // [N, 1]: of learned positions; without data if the family has none.
  absl::Status Forward(View ids, View position_ids, View out);
  // dout [R, D], which is of no further use then. Accumulates the gradients of table and positions,
  // of all tokens.
  absl::Status Backward(View ids, View position_ids, View dout);

 private:
  Device& device_;
  TokenCut& tokens_;
  RankGroups& groups_;
  double factor_ = 1;
  int64_t first_id_ = 0;
  int bucket_ = 0;
  View table_, table_gradient_;          // [V_local, D]
  View positions_, positions_gradient_;  // [P, D]; no data if the family has none
};

}  // namespace weft
