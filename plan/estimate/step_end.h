// StageDues and StepEnd price what follows the pipeline: reductions, gathers, the optimizer. A
// stage's dues depend on few degrees, so a search keeps them. Pure; a table is used by one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/question.h"
#include "plan/estimate/term_seconds.h"
#include "plan/schedule/simulate.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_key.h"

namespace weft {

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
  // The same under ZeRO with groups of each of `widths`, for bounds: where tp shares sequences, the
  // sums of norms' gradients are left out. The layout's degrees decide which widths they are:
  // always the same.
  absl::Span<const StageDues> OfWidths(const Layout& layout, int stage,
                                       absl::Span<const int64_t> widths);

 private:
  static constexpr size_t kMostEntries = 1 << 14;
  static constexpr size_t kMostByWidth = 1 << 10;
  // Says how many blocks the stage holds, and of which kinds.
  int64_t BlocksKey(const Layout& layout, int stage) const;
  struct Key {
    Key(const Layout& layout, int64_t blocks, bool first, bool last);
    LayoutKey<&Layout::zero_stage, &Layout::pp_schedule, &Layout::virtual_stages,
              &Layout::micro_batch_size, &Layout::gradient_accumulation_steps, &Layout::recompute,
              &Layout::offload_optimizer, &Layout::head_chunk_tokens>
        properties;
    int64_t num_blocks;
    int stage;  // whether ZeRO cuts, is_first, is_last one bit each
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return key.properties.Hash(key.num_blocks * 8 + key.stage);
    }
  };

  const Question& question_;
  const Machine machine_;
  std::unordered_map<Key, StageDues, KeyHash> entries_;
  std::unordered_map<Key, std::vector<StageDues>, KeyHash> by_width_;
  // Neighbours ask for the same, of the first and of the last stage in turns.
  struct Last {
    const Key* key = nullptr;
    const StageDues* dues = nullptr;
  };
  std::array<Last, 4> last_;  // by whether the stage is the first, and the last
};

// Returns what follows the pipeline on `stage`: exposed data communication, optimizer, host.
// `passes`: one microbatch's on that stage, which communication may hide behind.
TermSeconds StepEnd(const Layout& layout, int stage, const ActionSeconds& passes,
                    const StageDues& dues);

// At most its total, at any stage of ZeRO from 1 on and wherever the optimizer lives. REQUIRES:
// dues of such a stage.
double LeastStepEnd(const Layout& layout, const ActionSeconds& passes, const StageDues& dues);

}  // namespace weft
