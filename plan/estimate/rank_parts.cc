#include "plan/estimate/rank_parts.h"

#include <algorithm>

namespace weft {

PartSeconds RankPartsOf(const Question& question, const Layout& layout, int stage,
                        const TermSeconds& time) {
  PartSeconds parts;
  const auto microbatches = static_cast<double>(layout.gradient_accumulation_steps);
  const auto add = [&](double count, const PassCost& pass) {
    parts[StepPart::kForward] += microbatches * count * pass.forward.total_s();
    parts[StepPart::kBackward] += microbatches * count * pass.backward.total_s();
  };
  add(static_cast<double>(StageBlockCount(layout, question.model.num_blocks, stage)),
      BlockPass(question, layout, layout.recompute_of(stage)));
  if (stage == 0) add(1, EmbeddingPass(question, layout));
  if (stage == layout.pp - 1) add(1, HeadPass(question, layout));
  parts[StepPart::kReductions] = time.of(TimeTerm::kDataComm);
  parts[StepPart::kUpdate] = time.of(TimeTerm::kOptimizer);
  double told_s = time.of(TimeTerm::kStragglers);
  for (const double part_s : parts.seconds) told_s += part_s;
  parts[StepPart::kTransfers] = std::max(0.0, time.total_s() - told_s);
  return parts;
}

}  // namespace weft
