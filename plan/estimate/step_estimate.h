// Seconds of one optimizer step, as a sum of named terms on the critical path. Pieces that depend
// on few degrees are functions of their own, so that a search may keep them. Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/network_seconds.h"
#include "plan/estimate/question.h"
#include "plan/layout.h"
#include "plan/simulate.h"

namespace weft {

enum class TimeTerm {
  kMatmul,
  kAttention,
  kStreaming,  // norms, activations, residuals, softmax: bound by memory
  kOverhead,   // the host, where it is slower than the device
  kRecompute,  // forward work done again
  kTensorComm,
  kContextComm,
  kExpertComm,
  kPipelineComm,
  kBubble,
  kDataComm,  // exposed gradient reduction and parameter gathers, tied embedding, norm
  kOptimizer,
  kStragglers,
};
inline constexpr size_t kTimeTerms = static_cast<size_t>(TimeTerm::kStragglers) + 1;
absl::string_view TimeTermName(TimeTerm term);  // "matmul", "tensor_comm", ...

struct TermSeconds {
  std::array<double, kTimeTerms> seconds = {};
  double of(TimeTerm term) const { return seconds[static_cast<size_t>(term)]; }
  double& operator[](TimeTerm term) { return seconds[static_cast<size_t>(term)]; }
  double total_s() const;  // the sum, in the order of the terms
  TermSeconds& operator+=(const TermSeconds& other);
};
TermSeconds operator*(double factor, const TermSeconds& term);

// One microbatch through a part of the network on one rank.
struct PassCost {
  TermSeconds forward;
  TermSeconds backward;          // input and weight gradients, recompute included
  double weight_gradient_s = 0;  // of backward: what ZB-H1 may move
  double total_s() const { return forward.total_s() + backward.total_s(); }
};

// Depend on tp, cp, ep, sequence_parallel, micro_batch_size and head_chunks of the layout alone
// (and on where the groups lie: dp and pp only through the node borders they cross).
PassCost BlockPass(const Question& question, const Layout& layout, Recompute recompute);
PassCost EmbeddingPass(const Question& question, const Layout& layout);
PassCost HeadPass(const Question& question, const Layout& layout);

// The parts of the network on one layout, each priced when first asked for. A search keeps these
// for all layouts that share what the three above depend on, and asks with any of them.
class NetworkPasses {
 public:
  const PassCost& Embedding(const Question& question, const Layout& layout);
  const PassCost& Head(const Question& question, const Layout& layout);
  const PassCost& Block(const Question& question, const Layout& layout, Recompute recompute);

 private:
  std::optional<PassCost> embedding_, head_;
  std::array<std::optional<PassCost>, 3> blocks_;  // by Recompute
};

// A microbatch's activations to the next stage, one way.
double BoundarySeconds(const Question& question, const Layout& layout);

// StageDues prices what a stage does beside its passes and after them. It depends on the layout's
// degrees and on how it cuts parameters and blocks, not on the stage of ZeRO from 1 on, on where
// the optimizer lives, batch cut, schedule and recompute.
struct StageDues {
  // `share`: the stage's.
  StageDues(const Question& question, const Machine& machine, const Layout& layout, int stage,
            const StageShare& share);

  DataComm comm;
  TermSeconds after;              // what nothing hides: sums of copies, the norm, optimizer, host
  double offloaded_update_s = 0;  // in place of kOptimizer where the states are on the host
};

// The dues of stages, each priced when first asked for: a search asks for those of many layouts,
// most of them for the same. Borrows the question.
class StageDuesTable {
 public:
  explicit StageDuesTable(const Question& question)
      : question_(question), machine_(MachineOf(question)) {}

  // Valid until the next call.
  const StageDues& Of(const Layout& layout, int stage);
  // The same under ZeRO with groups of each of `widths`. The layout's degrees decide which they
  // are: always the same.
  absl::Span<const StageDues> OfWidths(const Layout& layout, int stage,
                                       absl::Span<const int64_t> widths);

 private:
  static constexpr size_t kMostEntries = 1 << 14;
  static constexpr size_t kMostByWidth = 1 << 10;
  struct Key {
    Key(const Layout& layout, int64_t blocks, bool first, bool last);
    int dp, pp, cp, tp, ep, zero_group;
    int64_t num_blocks;
    int habits;  // of sequence_parallel, whether ZeRO cuts, is_first, is_last one bit each
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  const Question& question_;
  const Machine machine_;
  std::unordered_map<Key, StageDues, KeyHash> entries_;
  std::unordered_map<Key, std::vector<StageDues>, KeyHash> by_width_;
  const Key* last_key_ = nullptr;  // neighbours ask for the same
  const StageDues* last_dues_ = nullptr;
};

// Returns what follows the pipeline on `stage`: exposed data communication, optimizer, host.
// `passes`: one microbatch's on that stage, which communication may hide behind.
TermSeconds StepEnd(const Layout& layout, int stage, const ActionSeconds& passes,
                    const StageDues& dues);
// At most its total, at any stage of ZeRO from 1 on and wherever the optimizer lives. REQUIRES:
// dues of such a stage.
double LeastStepEnd(const Layout& layout, const ActionSeconds& passes, const StageDues& dues);

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

// The same with the bubble from a dry run of the schedule (plan/simulate.h): for finalists.
absl::StatusOr<StepPasses> ReplayPasses(const Question& question, const Layout& layout);
absl::StatusOr<TermSeconds> ReplayStep(const Question& question, const Layout& layout);

// Returns what the same layout would save of a step of `total_s` if it need not be deterministic. 0
// where that is not asked, or has no price. It takes no memory. REQUIRES: as EstimateStep.
double DeterminismSeconds(const Question& question, const Layout& layout, double total_s);

}  // namespace weft
