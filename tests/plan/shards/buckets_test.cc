#include "plan/shards/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

// Sizes that no unit and no number of parts divides.
ModelShape Odd(Architecture architecture, bool tied) {
  ModelShape model;
  SetArchitecture(architecture, model);
  model.vocab_size = 11;
  model.hidden_size = 12;
  model.num_blocks = 5;
  model.num_heads = 2;
  model.num_kv_heads = architecture == Architecture::kGpt2 ? 2 : 1;
  model.head_dim = 6;
  model.ffn_size = 10;
  model.max_positions = 7;
  model.tied_embeddings = tied;
  return model;
}

struct BucketCase {
  ModelShape model;
  Layout layout;
  std::string text() const {
    return absl::StrCat(WordOf(model.architecture), model.tied_embeddings ? " tied " : " untied ",
                        LayoutText(layout));
  }
};

std::vector<BucketCase> SmallBucketCases() {
  std::vector<BucketCase> cases;
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    for (const bool tied : {true, false}) {
      for (int pp = 1; pp <= 3; ++pp) {
        for (int tp = 1; tp <= 2; ++tp) {
          cases.push_back({Odd(architecture, tied), {.pp = pp, .tp = tp}});
          if (pp != 2) continue;
          cases.back().layout.pp_schedule = ScheduleKind::kInterleaved;
          cases.back().layout.virtual_stages = 2;
        }
      }
    }
  }
  return cases;
}

TEST(ShardingOf, CutsWhatTheStageOfZeroSays) {
  struct Expected {
    int zero_stage, zero_hpz_partition_size, parts;
    bool gradients, weights;
  };
  for (const Expected& e : {Expected{0, 1, 1, false, false}, Expected{0, 2, 1, false, false},
                            Expected{1, 1, 4, false, false}, Expected{2, 1, 4, true, false},
                            Expected{3, 1, 4, true, true}, Expected{3, 2, 2, true, true}}) {
    const Sharding sharding = ShardingOf({.dp = 4,
                                          .zero_stage = e.zero_stage,
                                          .zero_hpz_partition_size = e.zero_hpz_partition_size});
    EXPECT_EQ(sharding.parts, e.parts) << e.zero_stage << " " << e.zero_hpz_partition_size;
    EXPECT_EQ(sharding.gradients, e.gradients);
    EXPECT_EQ(sharding.weights, e.weights);
  }
}

TEST(BucketsOf, HoldEachOfTheRanksShardsOnceAlignedAndApart) {
  for (const BucketCase& c : SmallBucketCases()) {
    for (const OptimizerStates states :
         {OptimizerStates::kTwoMoments, OptimizerStates::kTwoMoments8Bit}) {
      const int64_t unit = BucketUnit(states);
      for (int rank = 0; rank < c.layout.world_size(); ++rank) {
        SCOPED_TRACE(absl::StrCat(c.text(), " rank ", rank));
        std::vector<std::string> names;
        const bool is_first = c.layout.grid().CoordinatesOf(rank).tp == 0;
        for (const Bucket& bucket : BucketsOf(c.model, c.layout, rank, states)) {
          ASSERT_EQ(bucket.shards.size(), bucket.offsets.size());
          int64_t end = 0;
          for (size_t i = 0; i < bucket.shards.size(); ++i) {
            names.push_back(ShardText(bucket.shards[i]));
            EXPECT_EQ(bucket.offsets[i] % unit, 0);
            EXPECT_GE(bucket.offsets[i], end);
            const int64_t most = is_first ? end + unit - 1 : bucket.offsets[i];
            EXPECT_LE(bucket.offsets[i], most) << "no hole is larger than alignment needs";
            end = bucket.offsets[i] + bucket.shards[i].elements();
          }
          EXPECT_LE(end, bucket.elements);
          EXPECT_TRUE(!is_first || bucket.elements == (end + unit - 1) / unit * unit);
        }
        std::vector<std::string> expected;
        for (const TensorShard& shard : ShardsOf(c.model, c.layout, rank)) {
          expected.push_back(ShardText(shard));
        }
        EXPECT_THAT(names, testing::UnorderedElementsAreArray(expected));
      }
    }
  }
}

// The same part of each bucket then holds what tensor ranks have copies of, also where they do not
// hold equally much of the vocabulary.
TEST(BucketsOf, AreLaidOutAlikeOnAllTensorRanks) {
  for (const BucketCase& c : SmallBucketCases()) {
    for (int rank = 0; rank < c.layout.world_size(); ++rank) {
      SCOPED_TRACE(absl::StrCat(c.text(), " rank ", rank));
      GridCoordinates first = c.layout.grid().CoordinatesOf(rank);
      first.tp = 0;
      const auto expected =
          BucketsOf(c.model, c.layout, c.layout.grid().RankOf(first), OptimizerStates::kTwoMoments);
      const auto buckets = BucketsOf(c.model, c.layout, rank, OptimizerStates::kTwoMoments);
      ASSERT_EQ(buckets.size(), expected.size());
      for (size_t i = 0; i < buckets.size(); ++i) {
        EXPECT_EQ(buckets[i].offsets, expected[i].offsets);
        EXPECT_EQ(buckets[i].elements, expected[i].elements);
      }
    }
  }
}

TEST(BucketsOf, AreOnePerBlockAndOneForEachEndOfTheNetwork) {
  const auto names = [](bool tied, const Layout& layout, int rank) {
    std::vector<std::string> found;
    for (const Bucket& bucket :
         BucketsOf(Odd(Architecture::kGpt2, tied), layout, rank, OptimizerStates::kTwoMoments)) {
      found.push_back(bucket.name);
    }
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(names(false, {.pp = 1}, 0), ElementsAre("embedding", "blocks.0", "blocks.1",
                                                      "blocks.2", "blocks.3", "blocks.4", "head"));
  // One table for both ends, in one memory.
  EXPECT_THAT(names(true, {.pp = 1}, 0),
              ElementsAre("embedding", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4"));
  EXPECT_THAT(names(true, {.pp = 2}, 0),
              ElementsAre("embedding", "blocks.0", "blocks.1", "blocks.2"));
  EXPECT_THAT(names(true, {.pp = 2}, 1), ElementsAre("blocks.3", "blocks.4", "head"));
}

TEST(BucketsOf, KeepQueryKeyAndValueWeightsNeighbours) {
  const auto buckets =
      BucketsOf(Odd(Architecture::kGpt2, true), Layout{}, 0, OptimizerStates::kTwoMoments);
  std::vector<std::string> names;
  for (const TensorShard& shard : buckets[2].shards) names.push_back(shard.tensor.name);
  const std::string prefix = "blocks.1.attn.";
  EXPECT_THAT(std::vector<std::string>(names.begin() + 2, names.begin() + 10),
              testing::ElementsAre(prefix + "q.weight", prefix + "k.weight", prefix + "v.weight",
                                   prefix + "q.bias", prefix + "k.bias", prefix + "v.bias",
                                   prefix + "o.weight", prefix + "o.bias"));
}

// More parts than there are units in the smallest bucket, too.
TEST(PiecesOf, TileEveryTensorOnceAndLieWhereTheRunHasThem) {
  for (const BucketCase& c : SmallBucketCases()) {
    const int64_t unit = BucketUnit(OptimizerStates::kTwoMoments);
    for (const Bucket& bucket : BucketsOf(c.model, c.layout, 0, OptimizerStates::kTwoMoments)) {
      for (const int parts : {1, 2, 3, 7, 64}) {
        SCOPED_TRACE(absl::StrCat(c.text(), " ", bucket.name, " in ", parts));
        const int64_t size = PartElements(bucket.elements, parts, unit);
        EXPECT_EQ(size % unit, 0);
        EXPECT_GE(size * parts, bucket.elements);
        EXPECT_LT(size * parts, bucket.elements + unit * parts);
        std::vector<int64_t> covered(bucket.shards.size(), 0);  // up to here, so far
        for (int part = 0; part < parts; ++part) {
          for (const Piece& piece : PiecesOf(bucket, parts, part, unit)) {
            EXPECT_EQ(piece.range.begin, covered[piece.shard]);
            EXPECT_GT(piece.range.end, piece.range.begin);
            covered[piece.shard] = piece.range.end;
            EXPECT_GE(piece.offset, 0);
            EXPECT_LE(piece.offset + piece.range.size(), size);
            EXPECT_EQ(size * part + piece.offset, bucket.offsets[piece.shard] + piece.range.begin);
          }
        }
        for (size_t i = 0; i < covered.size(); ++i) {
          EXPECT_EQ(covered[i], bucket.shards[i].elements());
        }
      }
    }
  }
}

TEST(PiecesOf, KeepBlocksOfQuantisedStatesWhole) {
  const auto states = OptimizerStates::kTwoMoments8Bit;
  for (const Bucket& bucket : BucketsOf(Odd(Architecture::kLlama, false), Layout{}, 0, states)) {
    for (int part = 0; part < 3; ++part) {
      for (const Piece& piece : PiecesOf(bucket, 3, part, BucketUnit(states))) {
        EXPECT_EQ(piece.range.begin % 256, 0);
        EXPECT_EQ(piece.offset % 256, 0);
      }
    }
  }
}

std::vector<std::string> BoxTexts(const TensorShard& shard, int64_t begin, int64_t end) {
  std::vector<std::string> texts;
  for (const TensorShard& box : BoxesOf(shard, {begin, end})) texts.push_back(ShardText(box));
  return texts;
}

TEST(BoxesOf, AreTheEndOfARowWholeRowsAndTheStartOfOne) {
  TensorShard shard;
  shard.tensor.name = "w";
  shard.tensor.dims = {9, 20};
  shard.begin = {3, 10};
  shard.end = {8, 14};  // 5 rows of 4
  using testing::ElementsAre;
  EXPECT_THAT(BoxTexts(shard, 0, 20), ElementsAre("w[3:8,10:14]"));
  EXPECT_THAT(BoxTexts(shard, 3, 18), ElementsAre("w[3:4,13:14]", "w[4:7,10:14]", "w[7:8,10:12]"));
  EXPECT_THAT(BoxTexts(shard, 1, 3), ElementsAre("w[3:4,11:13]"));
  EXPECT_THAT(BoxTexts(shard, 6, 10), ElementsAre("w[4:5,12:14]", "w[5:6,10:12]"));
  EXPECT_THAT(BoxTexts(shard, 4, 8), ElementsAre("w[4:5,10:14]"));
  EXPECT_THAT(BoxTexts(shard, 8, 18), ElementsAre("w[5:7,10:14]", "w[7:8,10:12]"));
  shard.tensor.dims = {20};
  shard.begin = {10};
  shard.end = {14};
  EXPECT_THAT(BoxTexts(shard, 1, 4), ElementsAre("w[11:14]"));
}

TEST(BoxesOf, AnyRangeAreItsElementsInOrder) {
  TensorShard shard;
  shard.tensor.dims = {4, 3};
  shard.begin = {0, 0};
  shard.end = {4, 3};
  for (int64_t begin = 0; begin < 12; ++begin) {
    for (int64_t end = begin + 1; end <= 12; ++end) {
      const std::vector<TensorShard> boxes = BoxesOf(shard, {begin, end});
      EXPECT_LE(boxes.size(), 3u);
      int64_t at = begin;
      for (const TensorShard& box : boxes) {
        for (int64_t row = box.begin[0]; row < box.end[0]; ++row) {
          for (int64_t col = box.begin[1]; col < box.end[1]; ++col) EXPECT_EQ(row * 3 + col, at++);
        }
      }
      EXPECT_EQ(at, end);
    }
  }
}

}  // namespace
}  // namespace weft
