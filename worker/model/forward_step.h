// A step of a block with its parameters, and the part of its forward pass that one rank computes by
// itself. Training (worker/model/block) and inference (worker/model/inference) run the same steps;
// what they do not share is where keys and values come from, and sums over tp.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/block/block_ops.h"
#include "worker/backend/device.h"
#include "worker/model/block_steps.h"
#include "worker/state/parameters.h"

namespace weft {

struct ForwardStep {
  StepKind kind = StepKind::kNorm;
  std::vector<const BlockOp*> ops;
  Norm norm;
  std::vector<Linear> linears;  // of the step's linear operations
  int64_t head_dim = 0;         // of kHeadNorm and kTurn
  int in = 0;                   // the first input of the first operation
  std::vector<int> term_in;     // of a kBranch: of each product
  int out = 0;                  // of the last operation
};

// Where steps get their parameters from, by the names of layers without ".weight".
struct LayerSource {
  std::function<Norm(const std::string& layer)> norm;
  std::function<Linear(absl::Span<const std::string> layers)> linear;
};

// All steps of the block whose parameters' names begin with `prefix` ("blocks.3."). Borrows `ops`.
// REQUIRES: the engine runs all operations (EngineIssues).
std::vector<ForwardStep> MakeSteps(const BlockOps& ops, const std::string& prefix,
                                   const LayerSource& layers);

// The view of `value`.
inline View ViewOf(int value, absl::Span<const View> views) {
  return views[static_cast<size_t>(value)];
}

// In all that follows, `views` has a view for each of BlockOps::values.

// The factor of a kBranch; 1: there is none.
double FactorOf(const ForwardStep& step);

// The outputs of the step's products.
std::vector<LinearOutput> OutputsOf(const ForwardStep& step, absl::Span<const View> views);
// The statistics of a norm; of heads a row for each.
NormStatistics StatisticsOf(const ForwardStep& step, absl::Span<const View> views);
// [N * H, E] of `x` [N, H * E]: what a norm over heads works on. REQUIRES: no gaps between rows.
View ByHead(const ForwardStep& step, View x);

// Carry out a step of kind kNorm, kHeadNorm or kWideNorm, of kActivation (or the activation of
// kProductThenGelu by itself), of kTurn; the latter may also turn gradients back. `tables`: by
// ModelShape::rotations.
void DoNorm(const ForwardStep& step, absl::Span<const View> views, Device& device);
void DoActivation(const BlockOp& op, absl::Span<const View> views, Device& device);
void DoTurn(const ForwardStep& step, absl::Span<const View> tables, Turn turn,
            absl::Span<const View> views, Device& device);

// Returns the function of a gated activation's gate, and an activation without one, which is no
// GELU in its tanh form.
Gate GateOf(const BlockOp& op);
PlainActivation PlainActivationOf(const BlockOp& op);

// Carries out a kBranch whose products are whole on this rank: out = residual + factor linear(x),
// or the sum of several.
void ForwardBranch(const ForwardStep& step, absl::Span<const View> views, View out, Device& device);
// out = the sum of a kBranch's, or of a kSummedProduct's, products alone.
void MultiplyTerms(const ForwardStep& step, absl::Span<const View> views, View out, Device& device);
// Adds their biases.
void AddTermBiases(const ForwardStep& step, View out, Device& device);
// Carries out a kNormBranch: out = residual + norm(x).
void ForwardNormBranch(const ForwardStep& step, absl::Span<const View> views, View out,
                       Device& device);

}  // namespace weft
