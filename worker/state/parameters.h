// Parameters: the shards of the model that live on this rank, as views into the arena. Passes see
// whole shards; optimizer, norm and checkpoints see what this rank owns of them, a part of each
// bucket (plan/shards/buckets), which without ZeRO is all of it. Optimizer states and master
// weights may live in host memory (Layout::offload_optimizer): worker/state/state_swapper.h brings
// them to the device. Immutable after construction; the values behind the views are the trainer's.
#pragma once
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/memory/memory.h"
#include "plan/shards/buckets.h"
#include "plan/shards/fused_linears.h"
#include "plan/shards/shard.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/optimizer.h"
#include "worker/backend/adafactor_steps.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"
#include "worker/state/fp8_linear.h"

namespace weft {

struct OptimizerState {
  StateArray array;
  View values;  // one row
};

// A Parameter is what passes see. Views are [rows, cols] of the shard; a vector is one row. What
// ZeRO keeps in parts is there only while the bucket is open (worker/state/zero.h).
struct Parameter {
  TensorShard shard;
  int bucket = 0;
  View weight;
  View gradient;
  FactoredView moments = {};  // of the whole tensor, if they are factored; without row_mean
};

// An OwnPiece is what this rank owns of a shard: the range `range` of its box, row-major. Views are
// one row.
struct OwnPiece {
  TensorShard shard;
  size_t parameter = 0;  // whose it is: index in Parameters::all
  Range range;
  size_t bucket = 0;
  int64_t offset = 0;  // of the range's start, in elements from the start of the bucket's own part
  View weight;
  View gradient;  // a sum over the data group once it is reduced
  // fp32: what the optimizer works on and checkpoints hold. `weight` itself where that is fp32.
  View master;
  std::vector<OptimizerState> states;  // in the order of StateArrays
};

// Elements [first, first + count) of `piece`, as one. REQUIRES: they are whole blocks of states
// that are kept in blocks, up to the piece's end.
OwnPiece SliceOf(const OwnPiece& piece, int64_t first, int64_t count);

// Elements [first, first + count) of a row.
View RangeOf(View row, int64_t first, int64_t count);
// Returns the values of a state's array that belong to parameters [first, first + count) of its
// run.
View RangeOf(const OptimizerState& state, int64_t first, int64_t count);

// A bucket's runs. Where nothing is cut, its own part is the whole.
struct BucketViews {
  Sharding sharding;                // of this bucket (plan/shards/whole_places.h)
  View weights, gradients;          // whole; shared with other buckets if kept in parts
  View own_weights, own_gradients;  // this rank's part
  View own_master;                  // own_weights itself where that is fp32
  std::vector<OptimizerState> own_states;
  WholePlace place = WholePlace::kEnds;  // where they are whole, if kept in parts
  View reduced = {};  // whole, of 16 bits, shared by the place; null: gradients are summed as such

  bool is_narrow() const { return reduced.data != nullptr; }
};

// y = x weight^T + bias; weight is [out, in]. No bias: its views are null.
struct Linear {
  View weight, bias;
  View weight_gradient, bias_gradient;
  Fp8Linear* fp8 = nullptr;   // by which its products are computed while it is on
  Fp8Weight fp8_weight = {};  // as these take it

  bool is_fp8() const { return fp8 != nullptr && fp8->is_on(); }
};

// Over a row. No bias: its views are null.
struct Norm {
  View weight, bias;
  View weight_gradient, bias_gradient;
  NormConstants constants;
};

// Returns those of all norms of the model.
NormConstants NormConstantsOf(const ModelShape& model);

class Parameters {
 public:
  Parameters(const ModelShape& model, const Layout& layout, int rank, const Numerics& numerics,
             Arena& arena);

  absl::Span<const Parameter> all() const { return parameters_; }
  absl::Span<const OwnPiece> own() const { return own_; }
  absl::Span<const BucketViews> buckets() const { return buckets_; }  // as BucketsOf
  const Parameter* Find(absl::string_view tensor) const;  // null if this rank does not hold it
  // REQUIRES: this rank holds it.
  const Parameter& Get(absl::string_view tensor) const;
  // "<name>.weight" and, if there is one, "<name>.bias".
  Linear GetLinear(absl::string_view name) const;
  // Layers as one, whose outputs are theirs one after the other. REQUIRES: runs() has them.
  Linear GetFusedLinear(absl::Span<const std::string> names) const;
  Norm GetNorm(absl::string_view name) const;

  const FusedLinears& runs() const { return runs_; }  // LinearsOfOneRun

  // All gradients that are kept, as one row, for clearing in one call.
  View all_gradients() const { return all_gradients_; }

 private:
  // The rank's own pieces of the last of the buckets.
  void AddOwn(const Bucket& bucket, absl::Span<const Piece> pieces);
  void FindFactoredMoments(Arena& arena);

  const NormConstants norm_constants_;
  std::vector<Parameter> parameters_;
  std::vector<OwnPiece> own_;
  std::vector<BucketViews> buckets_;
  View all_gradients_;
  FusedLinears runs_;
};

// After a change of piece.master: piece.weight = master, rounded. Nothing where they are one.
void RoundWeight(const OwnPiece& piece, Device& device);

// A linear layer with its output, or the gradient of that.
struct LinearOutput {
  const Linear& linear;
  View y;  // [N, out]
};

// These work on layers that take the same x [N, in], which is cast to 8 bits once for all of them.
// y = x weight^T + bias of each
void ForwardLinears(View x, absl::Span<const LinearOutput> outputs, Device& device);
// dx = sum of dy weight over all
void BackwardLinearInputs(absl::Span<const LinearOutput> gradients, View dx, Device& device);
// Accumulates the gradients of weight and bias of each.
void BackwardLinearWeights(absl::Span<const LinearOutput> gradients, View x, Device& device);
// Both; dy is cast once for both.
void BackwardLinears(absl::Span<const LinearOutput> gradients, View x, View dx, Device& device);
// The same with x from `at_dx`, which is called when dx is queued, ahead of the gradients of
// weights: what moves dx starts there.
absl::Status BackwardLinears(absl::Span<const LinearOutput> gradients, View dx,
                             absl::FunctionRef<absl::StatusOr<View>()> at_dx, Device& device);

// y [N, out] = x [N, in] weight^T + bias.
void ForwardLinear(const Linear& linear, View x, View y, Device& device);
// Device::Linear and LinearGelu.
void ForwardLinear(const Linear& linear, View x, View residual, View y, Device& device);
void ForwardLinearGelu(const Linear& linear, View x, View h, View y, Device& device);
// y = beta * y + x weight^T alone, beta 0 or 1.
void MultiplyLinear(const Linear& linear, View x, float beta, View y, Device& device);

// A norm's forward pass saves these of each row [N, 1]: LayerNorm; RMSNorm has no mean (a null
// view).
struct NormStatistics {
  View mean, rstd;
};
void ForwardNorm(const Norm& norm, View x, View y, const NormStatistics& saved, Device& device);
// dx += gradient through the norm; accumulates those of weight and bias.
void BackwardNorm(const Norm& norm, View dy, View x, const NormStatistics& saved, View dx,
                  Device& device);

}  // namespace weft
