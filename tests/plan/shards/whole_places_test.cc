#include "plan/shards/whole_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/memory/memory.h"
#include "plan/schedule/stage_buckets.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

ModelShape Model(int64_t num_blocks, bool tied) {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = 96;
  model.hidden_size = 32;
  model.num_blocks = num_blocks;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  model.head_dim = 8;
  model.ffn_size = 128;
  model.max_positions = 16;
  model.tied_embeddings = tied;
  return model;
}

struct PlaceCase {
  Layout layout;
  ModelShape model;
  int rank = 0;
  std::string text() const {
    return absl::StrCat(LayoutText(layout), " rank ", rank, ", ", model.num_blocks, " blocks",
                        model.tied_embeddings ? ", tied" : "");
  }
};

// Stages of one to nine blocks, in pipelines of all kinds.
std::vector<PlaceCase> Pipelines() {
  std::vector<PlaceCase> cases;
  for (const bool tied : {true, false}) {
    for (int64_t blocks = 2; blocks <= 9; ++blocks) {
      for (int pp = 2; pp <= std::min<int64_t>(4, blocks); ++pp) {
        for (int chunks = 1; chunks * pp <= blocks; ++chunks) {
          Layout layout = {
              .dp = 4, .pp = pp, .gradient_accumulation_steps = pp, .virtual_stages = chunks};
          if (chunks > 1) layout.pp_schedule = ScheduleKind::kInterleaved;
          for (int stage = 0; stage < pp; ++stage) {
            const int rank = layout.grid().RankOf({.dp = 1, .pp = stage});
            cases.push_back({layout, Model(blocks, tied), rank});
          }
        }
      }
    }
  }
  return cases;
}

TEST(WholePlaces, AreTheSameOfAStageAsOfItsRanks) {
  for (const PlaceCase& c : Pipelines()) {
    SCOPED_TRACE(c.text());
    const std::vector<Bucket> buckets =
        BucketsOf(c.model, c.layout, c.rank, OptimizerStates::kTwoMoments);
    const int stage = c.layout.grid().CoordinatesOf(c.rank).pp;
    const StageBuckets of_stage =
        StageBucketsOf(c.layout, c.model.num_blocks, stage, c.model.tied_embeddings);
    const std::vector<WholePlace> places = WholePlacesOf(buckets);
    for (int bucket = 0; bucket < of_stage.count; ++bucket) {
      EXPECT_EQ(of_stage.PlaceOf(bucket), places[static_cast<size_t>(bucket)]) << bucket;
    }
    const BucketCounts counts = BucketElementsOf(buckets).counts;
    EXPECT_EQ(of_stage.counts().ends, counts.ends);
    EXPECT_EQ(of_stage.counts().blocks, counts.blocks);
    int64_t sum = 0;
    for (const WholePlace place :
         {WholePlace::kEnds, WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
      EXPECT_EQ(counts.at(place), std::count(places.begin(), places.end(), place));
      sum += counts.at(place);
    }
    EXPECT_EQ(sum, std::ssize(buckets));
  }
}

// The search's cuts by memory rest on this; tables whose copies two stages sum are whole.
TEST(WholePlaces, NeverTakeMoreAtAHigherStageOfZeroInAPipeline) {
  int less = 0;
  for (const PlaceCase& c : Pipelines()) {
    const BatchShape batch = {4 * c.layout.gradient_accumulation_steps, 16};
    for (const int zero_hpz_partition_size : {1, 2}) {
      Layout layout = c.layout;
      layout.zero_hpz_partition_size = zero_hpz_partition_size;
      std::vector<int64_t> bytes;
      for (layout.zero_stage = 0; layout.zero_stage <= 3; ++layout.zero_stage) {
        bytes.push_back(PlanRankMemory(c.model, batch, layout, c.rank, {}).total_bytes());
      }
      for (size_t i = 1; i < bytes.size(); ++i) {
        EXPECT_LE(bytes[i], bytes[i - 1]) << c.text() << " zero_stage " << i;
      }
      const bool shares = bytes[3] < bytes[1];
      if (!shares) continue;
      EXPECT_TRUE(SharesPlaces(layout, c.model.num_blocks, c.model.tied_embeddings)) << c.text();
      ++less;
    }
  }
  EXPECT_GT(less, 50);
}

TEST(SharesPlaces, WhereAnyStageHasThreeBlocksOrBothEndsOfTheNetwork) {
  EXPECT_TRUE(SharesPlaces({.dp = 2}, 1, /*tied=*/false));
  EXPECT_FALSE(SharesPlaces({.dp = 2}, 2, /*tied=*/true));
  EXPECT_TRUE(SharesPlaces({.dp = 2}, 3, /*tied=*/true));
  EXPECT_FALSE(SharesPlaces({.dp = 2, .pp = 4}, 8, /*tied=*/false));
  EXPECT_TRUE(SharesPlaces({.dp = 2, .pp = 4}, 9, /*tied=*/false));
  EXPECT_TRUE(SharesPlaces({.dp = 2, .pp = 2, .layers_per_stage = {1, 3}}, 4, /*tied=*/true));
}

}  // namespace
}  // namespace weft
