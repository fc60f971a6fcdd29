// Every optimizer trains the same model however its states are cut: in exactly the planned memory,
// and from a checkpoint of any layout as from its own.
#include "worker/state/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct OptimizerCase {
  const char* name;
  OptimizerSpec optimizer;
  // The bounds are of losses, and of losses under tp. In 8 bits a quotient that lies between two
  // numbers may be rounded to either, and under tp blocks are of a rank's own part of a tensor.
  double bound = 1e-6;
  double tensor_bound = 1e-6;
};

void PrintTo(const OptimizerCase& c, std::ostream* out) {
  *out << c.name;
}

// Each case keeps or does something that the others do not.
std::vector<OptimizerCase> Cases() {
  OptimizerSpec groups = {.lr = 1e-3, .weight_decay = 0.1};
  groups.param_groups = {{{"*.bias", "blocks.1.*"}, 20}, {{"*.weight"}, 0.5}};
  OptimizerSpec sgd = {.name = OptimizerKind::kSgd, .lr = 0.02, .weight_decay = 0.01};
  sgd.momentum = 0.9;
  OptimizerSpec dampened = sgd;
  dampened.dampening = 0.2;
  sgd.nesterov = true;
  // Without a first moment this model stands no more: at 1e-3 a rounding grows by half each step.
  OptimizerSpec adafactor = {.name = OptimizerKind::kAdafactor, .lr = 5e-4};
  return {{"param_groups", groups},
          {"nesterov", sgd},
          {"dampened", dampened},
          {"adafactor", adafactor},
          {"adamw_8bit", {.name = OptimizerKind::kAdamw8bit, .lr = 1e-3}, 2e-5, 2e-3}};
}

class AnyOptimizer : public testing::TestWithParam<OptimizerCase> {
 protected:
  // A global batch that 2, 3 and 4 data ranks divide; sizes that 3 does not.
  AnyOptimizer() {
    job_.optimizer = GetParam().optimizer;
    job_.training.global_batch_size = 12;
    job_.checkpoint.interval = 10;
    layouts_ = ZeroLayouts(job_);
    layouts_.insert(layouts_.begin(),
                    {MakeLayout(1, 1, 1, k1f1b, 4, job_), MakeLayout(1, 4, 1, k1f1b, 4, job_)});
  }

  static double BoundOf(int tp) { return tp > 1 ? GetParam().tensor_bound : GetParam().bound; }

  const TestFolder folder_;
  JobSpec job_ = SmallJob(folder_.path());
  std::vector<Layout> layouts_;  // the first is a single rank's
};

TEST_P(AnyOptimizer, TrainsAndContinuesTheSameModelUnderAnyLayout) {
  std::vector<TrainingOutcome> wholes;
  std::vector<std::string> folders;
  for (const Layout& layout : layouts_) {
    SCOPED_TRACE(LayoutText(layout));
    folders.push_back(folder_.Make(LayoutText(layout)));
    wholes.push_back(TrainWith(job_, layout, folders.back()));
    ASSERT_EQ(wholes.back().status(), absl::OkStatus());
    EXPECT_EQ(wholes.back().allocated_bytes, wholes.back().planned_bytes);
    EXPECT_LT(RelativeDifference(wholes.back().losses(), wholes.front().losses()),
              BoundOf(layout.tp));
  }
  ASSERT_LT(wholes.front().losses().back(), wholes.front().losses().front() - 0.5)
      << "the test would prove little";
  for (size_t to = 0; to < layouts_.size(); ++to) {
    for (const size_t from : {to, (to + 1) % layouts_.size()}) {
      SCOPED_TRACE(LayoutText(layouts_[from]) + " -> " + LayoutText(layouts_[to]));
      const TrainingOutcome resumed = TrainWith(job_, layouts_[to], folder_.Make("resumed"),
                                                folders[from] + "/checkpoint/step-10");
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      const std::vector<double> losses = wholes[from].losses();
      EXPECT_LT(RelativeDifference(resumed.losses(), {losses.begin() + 10, losses.end()}),
                BoundOf(std::max(layouts_[from].tp, layouts_[to].tp)));
      if (from != to) continue;
      const std::vector<std::string> bits = Bits(wholes[to].reports.front());
      EXPECT_EQ(Bits(resumed.reports.front()),
                std::vector<std::string>(bits.begin() + 10, bits.end()));
      EXPECT_EQ(resumed.weights, wholes[to].weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizer, AnyOptimizer, testing::ValuesIn(Cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
