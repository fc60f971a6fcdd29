// Pricer answers what layouts of one question cost, and keeps what many of them share. Answers are
// those of step_estimate.h, memory_estimate.h and goodput.h. Used by one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/estimate/goodput.h"
#include "plan/estimate/memory_estimate.h"
#include "plan/estimate/question.h"
#include "plan/estimate/step_estimate.h"
#include "plan/search/bound.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_key.h"

namespace weft {

// The stage that holds most.
struct Peak {
  int stage = 0;
  MemoryEstimate memory;
  int64_t host_bytes = 0;  // offloaded, of the rank of any stage that offloads most

  int64_t total_bytes() const { return memory.total_bytes(); }
  // The layout decides this: all terms but the context, which is there before the first buffer.
  int64_t layout_bytes() const { return total_bytes() - memory.of(MemoryTerm::kContext); }
  MemoryTerm largest() const;  // without the context
};

// One microbatch through each part of the network.
struct PartPasses {
  PassSeconds block, embedding, head;
  double transfer_s = 0;  // over a stage's border; 0 for one stage
};

// Returns what the workers of a full node hold of its memory if each offloads `host_bytes`.
int64_t NodeHostBytes(const Cluster& cluster, const Layout& layout, int64_t host_bytes);

// The passes of layouts that differ in where their states are, without what ZeRO 2 and 3 wait for.
// Most are cut by a bound before they are priced.
struct LazyPasses {
  double least_s = 0;                     // LeastPasses (plan/search/bound.h)
  NetworkSeconds network = {};            // one microbatch
  std::optional<StepPasses> priced = {};  // when they have been asked for

  // All microbatches', or at most that.
  double seconds() const { return priced ? priced->time.total_s() : least_s; }
};

class Pricer {
 public:
  // Borrows `question`, of which cluster.nodes and cluster.device.memory_bytes may become others:
  // nothing that is kept depends on them. REQUIRES: CheckModel and CheckCluster hold.
  explicit Pricer(const Question& question)
      : Pricer(question, std::make_shared<MemoryTable>(question)) {}
  // With what another pricer knows of memory, of a question that differs as MemoryTable says.
  Pricer(const Question& question, std::shared_ptr<MemoryTable> memory);

  const Question& question() const { return question_; }
  const std::shared_ptr<MemoryTable>& memory() const { return table_; }

  // REQUIRES for all of these: CheckLayout holds.
  TermSeconds Time(const Layout& layout) { return Time(layout, PassesOf(layout)); }
  TermSeconds Time(const Layout& layout, const StepPasses& passes) {
    return EstimateStep(question_, layout, passes, dues_);
  }
  // `first_end`: what follows the passes on stage 0.
  TermSeconds Time(const Layout& layout, const StepPasses& passes, const TermSeconds& first_end) {
    return EstimateStep(question_, layout, passes, dues_, first_end);
  }
  // Widths of ZeRO's groups, the widest first: the data group and what divides it, but not 1.
  absl::Span<const int64_t> ZeroWidths(int64_t data_group);
  // Returns what stage 0 does after the passes under ZeRO with groups of each of ZeroWidths. Valid
  // until the next call.
  absl::Span<const StageDues> FirstDuesOf(const Layout& layout) {
    return dues_.OfWidths(layout, 0, ZeroWidths(layout.data_group()));
  }
  // The same for all layouts that differ in where the optimizer lives, and in ZeRO where that moves
  // nothing in passes (plan/estimate/data_comm.h).
  StepPasses PassesOf(const Layout& layout);
  LazyPasses LazyPassesOf(const Layout& layout, double least_s);
  void PricePasses(const Layout& layout, LazyPasses& passes) {
    if (!passes.priced) passes.priced = PassesWithoutWaits(layout);
  }
  // A microbatch's passes on stage 0.
  ActionSeconds FirstStageOf(const Layout& layout, const LazyPasses& passes) const {
    return passes.network.OfStage(layout, question_.model.num_blocks, 0);
  }
  // Returns what follows them on `stage`.
  TermSeconds EndOf(const Layout& layout, int stage, const LazyPasses& passes) {
    return StepEnd(layout, stage, passes.network.OfStage(layout, question_.model.num_blocks, stage),
                   dues_.Of(layout, stage));
  }
  // For bounds.
  PartPasses PartsOf(const Layout& layout, Recompute recompute);
  const PassSeconds& BlockOf(const Layout& layout, Recompute recompute);
  // At most that in each of its parts, whichever of `ways` sequence_parallel goes.
  const PassSeconds& LeastBlockOf(const Layout& layout, Recompute recompute,
                                  absl::Span<const bool> ways);
  // Split evenly, or as `balanced`. Of stages that the layout gives otherwise only the mean is
  // known.
  Pipeline PipelineOf(const Layout& layout, Recompute recompute);
  // Returns the step time of the slowest of so many ranks over that of one of them.
  double SpreadOf(const Layout& layout) const;
  // The same pipeline, its first and last stage with what their passes wait for under the layout's
  // ZeRO stage. `network`: one microbatch's passes without that.
  Pipeline WithWaits(const Pipeline& pipeline, const Layout& layout, const NetworkSeconds& network);

  // The step's time, unless a bound from below on it is cut first: the least of its passes, then
  // the passes without waits, then with those of the pipeline's ends. `waiting`: the passes with
  // all waits, for all layouts that differ in the optimizer's place alone.
  template <typename IsCut>
  std::optional<TermSeconds> TimeUnless(const IsCut& is_cut, const Pipeline& pipeline,
                                        const ScheduleChoice& choice, const Layout& layout,
                                        LazyPasses& passes, std::optional<StepPasses>& waiting) {
    const TermSeconds end = EndOf(layout, 0, passes);
    const double end_s = end.total_s();
    if (is_cut(passes.seconds() + end_s)) return std::nullopt;
    if (!passes.priced) {
      passes.priced = PassesWithoutWaits(layout);
      if (is_cut(passes.seconds() + end_s)) return std::nullopt;
    }
    const bool waits = MovesInPasses(layout);
    if (waits && !waiting) {
      const Pipeline ends = WithWaits(pipeline, layout, passes.network);
      if (is_cut(LeastPasses(ends).Of(choice) + end_s)) return std::nullopt;
      waiting = PassesOf(layout);
    }
    const StepPasses& own = waits ? *waiting : *passes.priced;
    if (waits && is_cut(own.time.total_s() + end_s)) return std::nullopt;
    return Time(layout, own, end);
  }

  // Share of wall time that ends in committed steps.
  double Goodput(const Layout& layout, double step_s);
  // At least that, for any step time.
  double MostGoodput(int world_size);
  // With its guard.
  MemoryEstimate StageOf(const Layout& layout, int stage) {
    MemoryEstimate memory = EstimateStageMemory(question_, layout, stage, *table_);
    memory[MemoryTerm::kGuard] = GuardBytes(question_, memory);
    return memory;
  }
  Peak PeakOf(const Layout& layout);
  // The same, or nothing where some stage of GPUs holds more than `most_bytes`.
  std::optional<Peak> PeakUpTo(const Layout& layout, int64_t most_bytes);
  // The same as Fits(PeakOf(layout).memory).
  bool FitsEverywhere(const Layout& layout);

  // Returns what a device leaves for Peak::layout_bytes beside this context.
  int64_t UsableBytes(const MemoryEstimate& memory) const {
    return question_.cluster.device.memory_bytes - memory.of(MemoryTerm::kContext);
  }
  bool Fits(const MemoryEstimate& memory) const {
    return DeviceBytes(memory) <= question_.cluster.device.memory_bytes;
  }
  // Also into the host's memory, where that is stated.
  bool Fits(const Layout& layout, const Peak& peak) const {
    return Fits(peak.memory) && HostFits(layout, peak.host_bytes);
  }
  // Whether each stage fits, asked by itself, whatever stages are thought to be alike: what leaves
  // a search is held to that.
  bool IsProven(const Layout& layout);

 private:
  // `host_bytes`: offloaded by the rank that offloads most.
  bool HostFits(const Layout& layout, int64_t host_bytes) const {
    const int64_t there = question_.cluster.host_memory_bytes;
    return there == 0 || NodeHostBytes(question_.cluster, layout, host_bytes) <= there;
  }
  // Calls visit(stage) for those that may hold most, as long as it returns true.
  template <typename Visit>
  void EachUnlikeStage(const Layout& layout, const Visit& visit);
  StepPasses PassesWithoutWaits(Layout layout);
  PassSeconds WithDenseBlocks(const PassSeconds& embedding, const PassSeconds& block,
                              const Layout& layout, Recompute recompute);
  bool HasDenseBlocksLate(const Layout& layout) const;

  // The memory of a CPU device is the host's.
  int64_t DeviceBytes(const MemoryEstimate& memory) const {
    const bool same = question_.cluster.device.backend == BackendKind::kCpu;
    return memory.total_bytes() + (same ? memory.host_bytes : 0);
  }

  const Question& question_;
  std::shared_ptr<MemoryTable> table_;
  StageDuesTable dues_;
  int64_t checkpoint_bytes_ = 0;
  struct Faults {
    FaultCosts costs;
    double most_goodput = 1;
  };
  const Faults& FaultsOf(int world_size);

  // Holds what passes depend on of a layout, but for sequence_parallel. Of dp and pp that is only
  // whether there is more than one node, and who shares its cores: ranks up to one more than a node
  // holds.
  struct PassKey {
    explicit PassKey(const Layout& layout, int slots_per_node);
    LayoutKey<&Layout::dp, &Layout::pp, &Layout::zero_stage, &Layout::zero_hpz_partition_size,
              &Layout::pp_schedule, &Layout::virtual_stages, &Layout::gradient_accumulation_steps,
              &Layout::recompute, &Layout::sequence_parallel, &Layout::offload_optimizer>
        properties;
    int within;
    friend bool operator==(const PassKey&, const PassKey&) = default;
  };
  struct PassKeyHash {
    size_t operator()(const PassKey& key) const { return key.properties.Hash(key.within); }
  };
  // Thousands are asked for a bound, few for all their terms.
  struct Way {
    std::unique_ptr<NetworkPasses> network;
    std::optional<PassSeconds> embedding, head;
    std::array<std::optional<PassSeconds>, 3> block;  // by Recompute
    std::optional<double> transfer_s;
  };
  struct Entry {
    const BlockCompute* compute = nullptr;
    std::array<Way, 2> ways;                 // by sequence_parallel
    std::optional<PassSeconds> least_block;  // of both ways, with the recompute last asked for
    Recompute least_recompute = Recompute::kNone;
  };
  Entry& EntryOf(const Layout& layout);
  Way& WayOf(const Layout& layout) { return WayOf(EntryOf(layout), layout); }
  static Way& WayOf(Entry& entry, const Layout& layout) {
    return entry.ways[layout.sequence_parallel ? 1 : 0];
  }
  NetworkPasses& NetworkPassesOf(const Layout& layout);
  const PassSeconds& BlockOf(Entry& entry, const Layout& layout, Recompute recompute);
  const BlockCompute& ComputeOf(const Layout& layout);

  std::unordered_map<int, Faults> faults_;               // by world size
  std::map<int64_t, std::vector<int64_t>> zero_widths_;  // by data group
  std::unordered_map<PassKey, Entry, PassKeyHash> entries_;
  // Two sequences over two ranks are the products of one. The key has a rank's tokens, as
  // micro_batch_size over cp in lowest terms, and how weights are cut.
  std::map<std::array<int64_t, 5>, BlockCompute> computes_;
  // Neighbours ask for the same, for one size of microbatches after the other.
  struct Last {
    const PassKey* key = nullptr;
    Entry* entry = nullptr;
  };
  std::array<Last, 8> last_;  // by powers of two in micro_batch_size
};

}  // namespace weft
