// Bytes that one rank of a pipeline stage holds, by named term, from closed forms: for layouts that
// weft's engine cannot run yet, for other engines' habits, and for pruning. What weft's engine does
// run is taken from the very list that its worker allocates (plan/memory/stage_memory.h). Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/estimate/block_facts.h"
#include "plan/estimate/question.h"
#include "plan/memory/stage_memory.h"
#include "plan/spec/layout.h"
#include "plan/spec/words.h"

namespace weft {

enum class MemoryTerm {
  kWeights,
  kGradients,
  kMasterWeights,
  kOptimizer,
  kActivations,     // saved for backward, times what is in flight
  kHead,            // logits and their gradient
  kTransients,      // of backward: largest weight gradient, gathered inputs, casts
  kGatheredLayers,  // ZeRO-3: layers gathered at once
  kCommunication,
  kWorkspace,
  kContext,  // driver context, libraries, NCCL: an allowance
  kGuard,    // left free beside what is not exact: GuardBytes; the search adds it
};
inline constexpr size_t kMemoryTerms = static_cast<size_t>(MemoryTerm::kGuard) + 1;
Words WordsOf(MemoryTerm);  // "weights", "master_weights", ...

struct MemoryEstimate {
  std::array<int64_t, kMemoryTerms> bytes = {};
  int64_t host_bytes = 0;  // pinned or paged memory of this rank on its node
  bool exact = false;      // from the worker's own list; kContext stays an allowance

  int64_t of(MemoryTerm term) const { return bytes[static_cast<size_t>(term)]; }
  int64_t& operator[](MemoryTerm term) { return bytes[static_cast<size_t>(term)]; }
  int64_t total_bytes() const;    // all terms
  int64_t at_rest_bytes() const;  // weights, gradients, master weights, optimizer
  MemoryTerm largest() const;     // ties: the earlier term
};

// Whether the answer is the worker's own list: weft's engine can run the layout as asked.
bool HasListedMemory(const Question& question, const Layout& layout);

// The fullest rank of `stage`. Never decreases with micro_batch_size or seq_len.
// Where HasListedMemory, to the byte: its terms but for kContext are allocated as they are.
// kContext is the device's library_bytes: the whole is to be held against memory_bytes.
// REQUIRES: CheckModel and CheckCluster hold; CheckLayout holds; 0 <= stage < layout.pp.
MemoryEstimate EstimateStageMemory(const Question& question, const Layout& layout, int stage);

// Keeps what many layouts share, of questions that differ in the cluster and in the sequences of a
// step alone.
struct MemoryTable {
  explicit MemoryTable(const Question& question);
  bool lists = false;  // HasListedMemory, but for what layouts ask of the engine
  StageMemoryTable listed;
  BlockFactsTable blocks;
};
// The same with a table of the same question: for many layouts.
MemoryEstimate EstimateStageMemory(const Question& question, const Layout& layout, int stage,
                                   MemoryTable& table);

// From closed forms, whatever can be listed: no allocation, below a microsecond. `exact` is false.
MemoryEstimate ClosedFormStageMemory(const Question& question, const Layout& layout, int stage);
// The same for those who know `facts`: BlockFacts(question, layout).
MemoryEstimate ClosedFormStageMemory(const Question& question, const Layout& layout, int stage,
                                     const BlockFacts& facts);

// Returns what stays allocated between two steps: states, library workspaces, tensors at borders.
int64_t BytesBetweenSteps(const Question& question, const Layout& layout, int stage);

// Returns what to leave free beside an estimate that is called fitting: nothing where it is exact,
// else 1 GiB or, if more, the share of it that the engine's profile was seen to fall short by, or
// the room that its allocator needs.
int64_t GuardBytes(const Question& question, const MemoryEstimate& estimate);

// A bound from below for every layout with these degrees, whatever its micro batch, recompute and
// schedule: states alone. For the search. Never more than EstimateStageMemory's at_rest_bytes().
int64_t LeastStateBytes(const Question& question, const Layout& layout, int stage);

}  // namespace weft
