// Plan: what a search found, as values: the layout, what each stage holds, what a step takes by
// term, and what became of everything else. Reasons are codes and numbers here; describe.h puts
// into words what is shown. Pure values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/estimate/memory_estimate.h"
#include "plan/estimate/step_estimate.h"
#include "plan/spec/layout.h"
#include "plan/spec/spec_issue.h"

namespace weft {

// Why a layout is not the plan.
enum class RejectionCause {
  kBrokenRule,  // CheckLayout refuses it
  kDoesNotFit,
  kSlower,
};

struct Rejection {
  Layout layout = {};
  RejectionCause cause = RejectionCause::kSlower;
  TermSeconds time = {};     // kSlower: to be compared with the plan's, term by term
  double goodput = 1;        // kSlower
  int64_t memory_bytes = 0;  // of the fullest stage, kContext left out; 0 when a rule is broken
  int64_t guard_bytes = 0;   // of memory_bytes
  int stage = 0;             // the fullest
  int64_t host_bytes = 0;    // offloaded, of the rank that offloads most
  MemoryTerm largest = MemoryTerm::kWeights;  // of its terms
  int64_t largest_bytes = 0;
  std::string rule = {};  // kBrokenRule only: CheckLayout's sentence
};

// Describes one pipeline stage and what its fullest rank holds.
struct StageMemory {
  int stage = 0;
  BlockRange blocks;       // of its first chunk
  int64_t num_blocks = 0;  // over all its chunks
  MemoryEstimate memory;

  // The layout decides this: all terms but the context, which is there before the first buffer.
  int64_t layout_bytes() const { return memory.total_bytes() - memory.of(MemoryTerm::kContext); }
};

// points = evaluated + cut_by_time + cut_by_memory.
struct SearchCounts {
  int64_t points = 0;         // layouts of the lattice: every one keeps every rule
  int64_t evaluated = 0;      // priced
  int64_t cut_by_time = 0;    // not priced: a bound proves them slower than the finalists
  int64_t cut_by_memory = 0;  // not priced: what they need at least does not fit
  int64_t misfits = 0;        // of the evaluated
  int64_t replayed = 0;       // by a dry run of their schedule: finalists, the repaired among them
  // Finalists beside the lattice's: splits by memory, recompute per stage, narrower ZeRO groups,
  // and what the lattice holds beyond its own that only a dry run could put behind the best.
  int64_t repaired = 0;
  // Layouts that the search found and some stage of which does not fit, so that they were left
  // out: 0 but for a bug of weft.
  int64_t disproved = 0;
};

struct Plan {
  Layout layout = {};
  TermSeconds time;
  double goodput = 1;  // share of wall time that ends in committed steps
  bool fits = true;    // false only from PlanFor
  std::vector<StageMemory> stages;
  int64_t usable_bytes = 0;              // of one device, for what StageMemory::layout_bytes counts
  double bubble_fraction = 0;            // of stage-seconds, from the dry run
  std::vector<SpecIssue> engine_issues;  // what weft's engine cannot run of it yet; empty: runnable
  std::vector<Rejection> rejections;     // nearest first: runners-up, then misfits, then rules
  SearchCounts counts;
  int slots = 0;  // that were offered; the layout may use fewer

  bool runnable() const { return engine_issues.empty(); }
  int64_t peak_bytes() const;          // of the fullest stage: layout_bytes
  int64_t host_bytes() const;          // offloaded, of the rank that offloads most
  const StageMemory& fullest() const;  // ties: the earlier stage. REQUIRES: stages is not empty.
  double tokens_per_s(const BatchShape& batch) const;
};

// Fewer mechanisms: less recompute, lower tp, cp, ep and ZeRO stage, no offload, no pieces of the
// head, no chunks, fewer stages, an even split; a total order.
bool Simpler(const Layout& a, const Layout& b);

// The runner-up with no mechanism more than the plan, one less, and at most `share` slower: advice,
// as such a difference may be within what predictions are off. nullptr: none.
const Rejection* SimplerWithin(const Plan& plan, double share);

}  // namespace weft
