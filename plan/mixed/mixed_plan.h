// A MixedPlan trains one model on a fleet of several kinds of devices, in one of two ways: the
// stages of one pipeline lie on the parts of the fleet, each with as many blocks as its devices are
// fast and hold; or each part has replicas of its own, which take as many microbatches as they are
// fast. Pure values. Others plan so, too: Um et al., Metis (ATC 2024); Strati et al.,
// Sailor (arXiv:2504.17096).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/estimate/memory_estimate.h"
#include "plan/spec/layout.h"

namespace weft {

enum class MixedWay {
  kStages,    // unequal stages of one pipeline, each on one part
  kReplicas,  // equal pipelines, unequal numbers of microbatches
};

// A PartUse says what a plan has a part of the fleet do.
struct PartUse {
  int part = 0;         // in the order of the fleet
  int first_stage = 0;  // kStages; else all stages are here
  int stages = 0;
  int replicas = 0;                  // kReplicas: of the pipeline; else of each stage
  int64_t microbatches = 0;          // of each replica, in a step
  std::vector<int64_t> blocks = {};  // of each of the stages
  Recompute recompute = Recompute::kNone;
  int devices = 0;  // that work; the part may have more
  MemoryEstimate fullest = {};
  double busy_share = 0;  // of the step, in the passes of its slowest stage
};

struct MixedPlan {
  MixedWay way = MixedWay::kStages;
  // dp is that of all parts; kReplicas: gradient_accumulation_steps is the first part's.
  Layout layout = {};
  std::vector<PartUse> uses = {};  // kStages: in the order of stages; parts that idle are not there
  double step_s = 0;
  double idle_share = 0;  // of the step, on the busiest stage
  double goodput = 1;

  double objective_s() const { return step_s / goodput; }
};

// A way and a choice of parts that the plan has beaten, by its best layout; or why it has none.
struct MixedLoser {
  MixedPlan plan = {};   // step_s 0: none fits
  std::string of = {};   // "stages over h100, a100"
  std::string why = {};  // where none fits: what keeps the nearest from it
};

// A part alone, by the search for fleets of one kind.
struct PartAlone {
  double objective_s = 0;  // 0: none fits
  Layout layout = {};
  std::string why = {};  // then: why
};

struct MixedAnswer {
  MixedPlan plan = {};
  // The best first; what is more than a quarter slower may not be the best of its kind.
  std::vector<MixedLoser> losers = {};
  std::vector<PartAlone> alone = {};  // of each part
  int64_t priced = 0;                 // layouts
};

}  // namespace weft
