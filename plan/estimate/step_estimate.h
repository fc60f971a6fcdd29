// Seconds of one optimizer step, as a sum of named terms on the critical path. Pieces that depend
// on few degrees are functions of their own, so that a search may keep them. Pure.
#pragma once
#include <array>
#include <optional>

#include "absl/status/statusor.h"
#include "plan/estimate/network_seconds.h"
#include "plan/estimate/pass_cost.h"
#include "plan/estimate/question.h"
#include "plan/estimate/step_end.h"
#include "plan/estimate/term_seconds.h"
#include "plan/spec/layout.h"

namespace weft {

// The parts of the network on one layout, each priced when first asked for. A search keeps these
// for all layouts that share what passes depend on (pass_cost.h), and asks with any of them.
class NetworkPasses {
 public:
  const PassCost& Embedding(const Question& question, const Layout& layout);
  const PassCost& Head(const Question& question, const Layout& layout);
  const PassCost& Block(const Question& question, const Layout& layout, Recompute recompute);
  // One of the model's first blocks, without experts. REQUIRES: it has such blocks.
  const PassCost& DenseBlock(const Question& question, const Layout& layout, Recompute recompute);

 private:
  std::optional<PassCost> embedding_, head_;
  std::array<std::optional<PassCost>, 3> blocks_;        // by Recompute
  std::array<std::optional<PassCost>, 3> dense_blocks_;  // by Recompute
};

// The passes of all microbatches: blocks, embedding and head of the slowest stage with what they
// wait for, transfers, and the bubble by closed form. Depends on the ZeRO stage and group only
// where MovesInPasses (plan/estimate/data_comm.h), and then is at least what it is without; never
// on offload.
struct StepPasses {
  TermSeconds time;
  NetworkSeconds network;  // one microbatch, without waits
};
StepPasses EstimatePasses(const Question& question, const Layout& layout, NetworkPasses& network,
                          StageDuesTable& dues);
// StepPasses::network alone.
NetworkSeconds NetworkOf(const Question& question, const Layout& layout, NetworkPasses& network);

// The whole step: passes, then the end of the stage whose end takes longest, and stragglers.
// total_s() is the sum of the terms. REQUIRES: CheckModel, CheckCluster and CheckLayout hold.
TermSeconds EstimateStep(const Question& question, const Layout& layout);
TermSeconds EstimateStep(const Question& question, const Layout& layout, const StepPasses& passes,
                         StageDuesTable& dues);
// StepEnd after these passes.
TermSeconds StageEnd(const Question& question, const Layout& layout, int stage,
                     const StepPasses& passes, StageDuesTable& dues);
// `first_end`: the StageEnd of stage 0, from those who have asked for it.
TermSeconds EstimateStep(const Question& question, const Layout& layout, const StepPasses& passes,
                         StageDuesTable& dues, const TermSeconds& first_end);

// The same with the bubble from a dry run of the schedule (plan/schedule/simulate.h): for
// finalists.
absl::StatusOr<StepPasses> ReplayPasses(const Question& question, const Layout& layout);
absl::StatusOr<TermSeconds> ReplayStep(const Question& question, const Layout& layout);

// Returns what the same layout would save of a step of `total_s` if it need not be deterministic. 0
// where that is not asked, or has no price. It takes no memory. REQUIRES: as EstimateStep.
double DeterminismSeconds(const Question& question, const Layout& layout, double total_s);

}  // namespace weft
