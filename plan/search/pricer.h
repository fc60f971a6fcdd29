// What layouts of one question cost, with what many of them share kept. Answers are those of
// step_estimate.h, memory_estimate.h and goodput.h. Used by one thread.
#pragma once
#include <cstdint>
#include <map>

#include "plan/estimate/goodput.h"
#include "plan/estimate/memory_estimate.h"
#include "plan/estimate/question.h"
#include "plan/estimate/step_estimate.h"
#include "plan/layout.h"
#include "plan/stage_memory.h"

namespace weft {

// The stage that holds most.
struct Peak {
  int stage = 0;
  MemoryEstimate memory;

  int64_t total_bytes() const { return memory.total_bytes(); }
  // What the layout decides: all terms but the context, which is there before the first buffer.
  int64_t layout_bytes() const { return total_bytes() - memory.of(MemoryTerm::kContext); }
  MemoryTerm largest() const;  // without the context
};

class Pricer {
 public:
  // Borrows `question`. REQUIRES: CheckModel and CheckCluster hold.
  explicit Pricer(const Question& question);

  const Question& question() const { return question_; }

  // REQUIRES for all of these: CheckLayout holds.
  TermSeconds Time(const Layout& layout) const { return EstimateStep(question_, layout); }
  // Share of wall time that ends in committed steps.
  double Goodput(const Layout& layout, double step_s);
  // At least that, for any step time.
  double MostGoodput(int world_size);
  // With its guard.
  MemoryEstimate StageOf(const Layout& layout, int stage) {
    MemoryEstimate memory = EstimateStageMemory(question_, layout, stage, table_);
    memory[MemoryTerm::kGuard] = GuardBytes(question_, memory);
    return memory;
  }
  Peak PeakOf(const Layout& layout);

  // What a device leaves for Peak::layout_bytes beside this context.
  int64_t UsableBytes(const MemoryEstimate& memory) const {
    return question_.cluster.device.memory_bytes - memory.of(MemoryTerm::kContext);
  }
  bool Fits(const MemoryEstimate& memory) const {
    return memory.total_bytes() <= question_.cluster.device.memory_bytes;
  }
  bool Fits(const Peak& peak) const { return Fits(peak.memory); }

 private:
  const Question& question_;
  StageMemoryTable table_;
  int64_t checkpoint_bytes_ = 0;
  struct Faults {
    FaultCosts costs;
    double most_goodput = 1;
  };
  const Faults& FaultsOf(int world_size);

  std::map<int, Faults> faults_;  // by world size
};

}  // namespace weft
