#include "plan/estimate/rank_parts.h"

#include <algorithm>

#include "plan/estimate/step_estimate.h"

namespace weft {

PartSeconds RankPartsOf(const Question& question, const Layout& layout, int stage,
                        const TermSeconds& time) {
  PartSeconds parts;
  const auto microbatches = static_cast<double>(layout.gradient_accumulation_steps);
  NetworkPasses network;
  const ActionSeconds passes =
      NetworkOf(question, layout, network).OfStage(layout, question.model.num_blocks, stage);
  parts[StepPart::kForward] = microbatches * passes.forward_s;
  parts[StepPart::kBackward] = microbatches * passes.backward_s;
  parts[StepPart::kReductions] = time.of(TimeTerm::kDataComm);
  parts[StepPart::kUpdate] = time.of(TimeTerm::kOptimizer);
  double told_s = time.of(TimeTerm::kStragglers);
  for (const double part_s : parts.seconds) told_s += part_s;
  parts[StepPart::kTransfers] = std::max(0.0, time.total_s() - told_s);
  return parts;
}

}  // namespace weft
