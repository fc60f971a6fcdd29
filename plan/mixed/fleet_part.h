// A FleetPart is the devices of one kind in a fleet of several kinds, and prices what stages on
// them take and hold. Used by one thread.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "plan/estimate/question.h"
#include "plan/estimate/step_end.h"
#include "plan/schedule/simulate.h"
#include "plan/search/pricer.h"
#include "plan/spec/layout.h"

namespace weft {

class FleetPart {
 public:
  // `question`: the job on this part's cluster alone. REQUIRES: CheckModel and CheckCluster hold.
  explicit FleetPart(Question question);
  // `memory`: what parts of the same job share.
  FleetPart(Question question, std::shared_ptr<MemoryTable> memory);
  FleetPart(const FleetPart&) = delete;  // the pricer borrows the question
  FleetPart& operator=(const FleetPart&) = delete;

  const Question& question() const { return question_; }
  Pricer& pricer() { return pricer_; }  // of this part's question
  const Cluster& cluster() const { return question_.cluster; }
  const std::string& name() const { return question_.cluster.name; }
  int slots() const { return question_.cluster.slots(); }

  // REQUIRES for all of these: the layout keeps every rule but those of the batch's cut.

  // One microbatch through `stage`, with what its passes wait for.
  ActionSeconds StageSeconds(const Layout& layout, int stage);
  // One microbatch through one block, and through the ends that `stage` holds.
  double BlockSeconds(const Layout& layout, Recompute recompute);
  double EndsSeconds(const Layout& layout, int stage);
  // Returns what follows the passes on `stage`.
  double EndSeconds(const Layout& layout, int stage);
  // Returns what of a transfer to a stage on other nodes, such as another part's, is waited for.
  double BorderSeconds(const Layout& layout, double forward_s) const;

  // Returns what the fullest rank of `stage` holds, with its guard.
  MemoryEstimate MemoryOf(const Layout& layout, int stage) {
    return pricer_.StageOf(layout, stage);
  }
  bool Fits(const Layout& layout, const MemoryEstimate& memory) const;
  // Most blocks that `stage` could hold, by what two numbers of them need; 0: not one.
  int64_t MostBlocks(Layout layout, int stage);
  double Goodput(const Layout& layout, double step_s) { return pricer_.Goodput(layout, step_s); }

 private:
  // Passes depend on these.
  static std::array<int64_t, 9> KeyOf(const Layout& layout);
  const NetworkSeconds& NetworkWith(const Layout& layout, Recompute recompute);

  const Question question_;
  const Question across_;  // the same, each rank on a node of its own
  Pricer pricer_;
  StageDuesTable dues_;
  // Neighbours ask for the same as the last one.
  struct Last {
    std::array<int64_t, 9> key = {};  // 0: nothing was
    NetworkSeconds network;
  };
  std::array<Last, 3> last_;  // by Recompute
};

}  // namespace weft
