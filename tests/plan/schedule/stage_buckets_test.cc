#include "plan/schedule/stage_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/schedule/step_schedule.h"
#include "plan/shards/buckets.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ModelShape Model(bool tied) {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = 11;
  model.hidden_size = 12;
  model.num_blocks = 7;
  model.num_heads = 2;
  model.num_kv_heads = 2;
  model.head_dim = 6;
  model.ffn_size = 10;
  model.max_positions = 7;
  model.tied_embeddings = tied;
  return model;
}

struct Case {
  Layout layout;
  bool tied = false;
  int stage = 0;
  std::string text() const {
    return absl::StrCat(LayoutText(layout), tied ? " tied" : " untied", " stage ", stage);
  }
};

// All schedules, with and without a data group.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool tied : {true, false}) {
    for (const int dp : {1, 2}) {
      for (int pp = 1; pp <= 3; ++pp) {
        for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                        ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1}) {
          if (kind == ScheduleKind::kInterleaved && pp == 1) continue;
          Layout layout = {
              .dp = dp, .pp = pp, .pp_schedule = kind, .gradient_accumulation_steps = 6};
          if (kind == ScheduleKind::kInterleaved) layout.virtual_stages = 2;
          for (int stage = 0; stage < pp; ++stage) cases.push_back({layout, tied, stage});
        }
      }
    }
  }
  return cases;
}

StageBuckets Of(const Case& c) {
  return StageBucketsOf(c.layout, Model(c.tied).num_blocks, c.stage, c.tied);
}

TEST(StageBuckets, AreThoseOfTheRanksOfTheStage) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.text());
    const ModelShape model = Model(c.tied);
    const int rank = c.layout.grid().RankOf({.pp = c.stage});
    const std::vector<Bucket> listed =
        BucketsOf(model, c.layout, rank, OptimizerStates::kTwoMoments);
    const StageBuckets buckets = Of(c);
    ASSERT_EQ(buckets.count, std::ssize(listed));
    const auto name = [&](int64_t bucket) { return listed[static_cast<size_t>(bucket)].name; };
    if (buckets.embedding >= 0) {
      EXPECT_EQ(name(buckets.embedding), "embedding");
    }
    if (buckets.head >= 0 && buckets.head != buckets.embedding) {
      EXPECT_EQ(name(buckets.head), "head");
    }
    for (int chunk = 0; chunk < c.layout.virtual_stages; ++chunk) {
      const BlockRange blocks = ChunkBlocks(c.layout, model.num_blocks, c.stage, chunk);
      const BlockRange& held = buckets.chunks[static_cast<size_t>(chunk)];
      ASSERT_EQ(held.size(), blocks.size());
      for (int64_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(name(held.begin + i), absl::StrCat("blocks.", blocks.begin + i));
      }
    }
  }
}

TEST(StageBuckets, AreUsedForthAndBack) {
  Layout layout;
  const StageBuckets tied = StageBucketsOf(layout, 2, 0, /*tied=*/true);
  EXPECT_THAT(WeightsOf({.op = Op::kForward}, tied), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(WeightsOf({.op = Op::kBackward}, tied), ElementsAre(2, 1));
  EXPECT_THAT(WeightsOf({.op = Op::kBackwardWeight}, tied), IsEmpty());
  EXPECT_THAT(GradientsOf({.op = Op::kForward}, tied), ElementsAre(0));
  EXPECT_THAT(GradientsOf({.op = Op::kBackward}, tied), ElementsAre(2, 1, 0));
  EXPECT_THAT(GradientsOf({.op = Op::kBackwardInput}, tied), ElementsAre(2, 1, 0));
  EXPECT_THAT(GradientsOf({.op = Op::kBackwardWeight}, tied), ElementsAre(2, 1));
  const StageBuckets untied = StageBucketsOf(layout, 2, 0, /*tied=*/false);
  EXPECT_THAT(WeightsOf({.op = Op::kForward}, untied), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(GradientsOf({.op = Op::kForward}, untied), ElementsAre(3));
}

// Each bucket once: not before a pass that still adds to it, and awaited before anything reads it.
TEST(WithReductions, ListsEachBucketOnceAfterItsLastPass) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.text());
    const StageBuckets buckets = Of(c);
    const std::vector<Action> actions = StepSchedule(Model(c.tied), c.layout, c.stage);
    std::vector<int> reduced(static_cast<size_t>(buckets.count));
    bool awaited = false;
    for (const Action& action : actions) {
      if (IsPass(action.op)) {
        for (const int bucket : GradientsOf(action, buckets)) {
          EXPECT_EQ(reduced[static_cast<size_t>(bucket)], 0) << ActionText(action) << " " << bucket;
        }
      }
      if (action.op == Op::kReduceGradients) {
        EXPECT_FALSE(awaited);
        ++reduced[static_cast<size_t>(action.bucket)];
      }
      if (action.op == Op::kAwaitGradients) awaited = true;
      if (action.op == Op::kReduceParts || action.op == Op::kReduceNorm) {
        EXPECT_EQ(awaited, c.layout.dp > 1);
      }
    }
    EXPECT_THAT(reduced, ::testing::Each(c.layout.dp > 1 ? 1 : 0));
  }
}

}  // namespace
}  // namespace weft
