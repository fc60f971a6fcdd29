// Parameters: the shards of the model that live on this rank, each with its weight, its gradient
// and its optimizer state, as views into the arena. Which shards these are is plan/shard's word.
// Immutable after construction; the values behind the views are the trainer's.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/layout.h"
#include "plan/model.h"
#include "plan/optimizer.h"
#include "plan/shard.h"
#include "worker/arena.h"
#include "worker/backend/device.h"

namespace weft {

struct OptimizerState {
  absl::string_view name;  // of StateNames
  View values;
};

// A tensor's views are [rows, cols] of the shard; a vector is one row.
struct Parameter {
  TensorShard shard;
  View weight;
  View gradient;
  std::vector<OptimizerState> states;  // in the order of StateNames
};

// y = x weight^T + bias; weight is [out, in]. No bias: its views are null.
struct Linear {
  View weight, bias;
  View weight_gradient, bias_gradient;
};

// Over D: LayerNorm, or RMSNorm if it has no bias (null views).
struct Norm {
  View weight, bias;
  View weight_gradient, bias_gradient;
};

class Parameters {
 public:
  Parameters(const ModelShape& model, const Layout& layout, int rank, OptimizerStates states,
             Arena& arena);

  absl::Span<const Parameter> all() const { return parameters_; }
  const Parameter* Find(absl::string_view tensor) const;  // null if this rank does not hold it
  // REQUIRES: this rank holds it.
  const Parameter& Get(absl::string_view tensor) const;
  // "<name>.weight" and, if there is one, "<name>.bias".
  Linear GetLinear(absl::string_view name) const;
  Norm GetNorm(absl::string_view name) const;

  // All gradients as one row, for clearing and reducing in one call.
  View all_gradients() const { return all_gradients_; }

 private:
  std::vector<Parameter> parameters_;
  View all_gradients_;
};

// y [N, out] = x [N, in] weight^T, without the bias.
void MultiplyLinear(const Linear& linear, View x, View y, Device& device);
void AddLinearBias(const Linear& linear, View y, Device& device);  // nothing if there is none
// Both.
void ForwardLinear(const Linear& linear, View x, View y, Device& device);
// dx = beta * dx + dy weight, beta 0 or 1.
void BackwardLinearInput(const Linear& linear, View dy, float beta, View dx, Device& device);
// Accumulates the gradients of weight and bias.
void BackwardLinearWeight(const Linear& linear, View dy, View x, Device& device);

// What a norm's forward pass saves of each row [N, 1]; RMSNorm has no mean (a null view).
struct NormStatistics {
  View mean, rstd;
};
void ForwardNorm(const Norm& norm, double eps, View x, View y, const NormStatistics& saved,
                 Device& device);
// dx += gradient through the norm; accumulates those of weight and bias.
void BackwardNorm(const Norm& norm, View dy, View x, const NormStatistics& saved, View dx,
                  Device& device);

}  // namespace weft
