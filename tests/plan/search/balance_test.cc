#include "plan/search/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/schedule/makespan.h"
#include "plan/search/bound.h"
#include "tests/plan/search/random_question.h"

namespace weft {
namespace {

double Slowest(const std::vector<int64_t>& blocks, double embedding, double head) {
  double slowest = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    double load = static_cast<double>(blocks[i]);
    if (i == 0) load += embedding;
    if (i + 1 == blocks.size()) load += head;
    slowest = std::max(slowest, load);
  }
  return slowest;
}

// The least slowest stage of all ways to fill the stages from `stage` on.
double LeastByTrying(std::vector<int64_t>& blocks, size_t stage, int64_t left, double embedding,
                     double head) {
  if (stage + 1 == blocks.size()) {
    blocks[stage] = left;
    return Slowest(blocks, embedding, head);
  }
  double least = 1e300;
  const auto after = static_cast<int64_t>(blocks.size() - stage) - 1;
  for (blocks[stage] = 1; blocks[stage] <= left - after; ++blocks[stage]) {
    const int64_t own = blocks[stage];
    least = std::min(least, LeastByTrying(blocks, stage + 1, left - own, embedding, head));
    blocks[stage] = own;
  }
  return least;
}

TEST(BalancedSplit, HasTheFastestSlowestStageOfAllSplits) {
  for (const double embedding : {0.0, 0.05, 0.5, 1.0, 2.3, 40.0}) {
    for (const double head : {0.0, 0.05, 0.3, 1.0, 2.4, 7.75, 1e6}) {
      for (int stages = 2; stages <= 5; ++stages) {
        for (int64_t num_blocks = stages; num_blocks <= 12; ++num_blocks) {
          const Split split = BalancedSplit(num_blocks, stages, embedding, head);
          const std::vector<int64_t> blocks = StageBlocksOf(split, stages);
          SCOPED_TRACE(absl::StrCat(num_blocks, " blocks, embedding ", embedding, ", head ", head,
                                    ": ", absl::StrJoin(blocks, " ")));
          ASSERT_EQ(std::accumulate(blocks.begin(), blocks.end(), int64_t{0}), num_blocks);
          ASSERT_GE(*std::min_element(blocks.begin(), blocks.end()), 1);
          std::vector<int64_t> tried(blocks.size());
          const double least = LeastByTrying(tried, 0, num_blocks, embedding, head);
          EXPECT_NEAR(Slowest(blocks, embedding, head), least, 1e-9 * least);
          EXPECT_EQ(SlowestStage(split, embedding, head), Slowest(blocks, embedding, head));
        }
      }
    }
  }
}

TEST(BalancedSplit, TakesFromTheEndsWhatTheyHoldBesides) {
  // Llama-3 405B: 126 = 128 - 2. Llama-3 8B: the head weighs as much as two blocks and a half.
  EXPECT_EQ(BalancedSplit(126, 64, 0.01, 0.4),
            (Split{.first = 1, .inner = 2, .last = 1, .fewer = 0}));
  EXPECT_EQ(StageBlocksOf(BalancedSplit(32, 4, 0.02, 2.4), 4), (std::vector<int64_t>{8, 9, 9, 6}));
}

// The search cuts by these bounds.
TEST(Bounds, AreNeverAboveTheClosedFormsOfASchedule) {
  Dice dice(7);
  for (int round = 0; round < 20'000; ++round) {
    const auto seconds = [&] { return static_cast<double>(dice.Between(0, 1000)) / 1000; };
    Pipeline pipeline;
    pipeline.stages = static_cast<int>(dice.Between(2, 9));
    pipeline.num_blocks = dice.Between(pipeline.stages, 4 * pipeline.stages);
    pipeline.microbatches = dice.Between(1, 24);
    for (PassSeconds* part : {&pipeline.block, &pipeline.embedding, &pipeline.head}) {
      part->forward_s = 0.1 + seconds();
      part->weight_gradient_s = seconds();
      part->backward_s = part->weight_gradient_s + seconds();
    }
    pipeline.transfer_s = dice.Chance(50) ? seconds() : 0;
    if (dice.Chance(50)) {
      for (PassSeconds* waits : {&pipeline.first_waits, &pipeline.last_waits}) {
        waits->forward_s = seconds();
        waits->weight_gradient_s = seconds();
        waits->backward_s = waits->weight_gradient_s + seconds();
      }
    }
    pipeline.balanced = BetterSplit(pipeline);
    Layout layout{.pp = pipeline.stages};
    ScheduleChoice choice;
    choice.kind = dice.Of<ScheduleKind>(
        {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1});
    choice.balanced = pipeline.balanced && dice.Chance(70);
    if (dice.Chance(25) && pipeline.microbatches % pipeline.stages == 0 &&
        pipeline.num_blocks >= 2 * pipeline.stages) {
      choice = {ScheduleKind::kInterleaved, 2, false};
    }
    layout.virtual_stages = choice.virtual_stages;
    if (choice.balanced) layout.layers_per_stage = StageBlocksOf(*pipeline.balanced, layout.pp);
    std::vector<ActionSeconds> stages;
    for (int stage = 0; stage < layout.pp; ++stage) {
      const auto blocks = static_cast<double>(StageBlockCount(layout, pipeline.num_blocks, stage));
      PassSeconds sum = {};
      const auto add = [&](double count, const PassSeconds& part) {
        sum.forward_s += count * part.forward_s / choice.virtual_stages;
        sum.backward_s += count * part.backward_s / choice.virtual_stages;
        sum.weight_gradient_s += count * part.weight_gradient_s / choice.virtual_stages;
      };
      add(blocks, pipeline.block);
      if (stage == 0) add(1, pipeline.embedding);
      if (stage == layout.pp - 1) add(1, pipeline.head);
      if (stage == 0) add(1, pipeline.first_waits);
      if (stage == layout.pp - 1) add(1, pipeline.last_waits);
      stages.push_back({.forward_s = sum.forward_s,
                        .backward_s = sum.backward_s,
                        .transfer_s = pipeline.transfer_s,
                        .weight_gradient_s = sum.weight_gradient_s});
    }
    const double step_s =
        PipelineSeconds(choice.kind, stages, pipeline.microbatches, choice.virtual_stages);
    SCOPED_TRACE(absl::StrCat("round ", round, " ", WordOf(choice.kind), " ", layout.pp, " stages ",
                              pipeline.microbatches, " microbatches"));
    ASSERT_LE(LeastPasses(pipeline).Of(choice), step_s * (1 + 1e-9));
    ASSERT_LE(LeastSecondsOfAnySplit(pipeline), step_s * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace weft
