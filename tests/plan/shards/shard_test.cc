#include "plan/shards/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/block/tensors.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

Cluster ManySlots() {
  Cluster cluster;
  cluster.slots_per_node = 64;
  return cluster;
}

// Vocabulary 11 and 5 blocks: neither tp nor pp cut evenly.
ModelShape TinyGpt2(bool tied) {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = 11;
  model.hidden_size = 8;
  model.num_blocks = 5;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  model.head_dim = 2;
  model.ffn_size = 16;
  model.max_positions = 4;
  model.tied_embeddings = tied;
  return model;
}

ModelShape TinyLlama(bool tied) {
  ModelShape model = TinyGpt2(tied);
  SetArchitecture(Architecture::kLlama, model);
  model.num_kv_heads = 2;
  model.ffn_size = 12;
  return model;
}

struct ShardCase {
  ModelShape model;
  Layout layout;
  std::string text() const {
    return absl::StrCat(WordOf(model.architecture), model.tied_embeddings ? " tied " : " untied ",
                        LayoutText(layout));
  }
};

std::vector<ShardCase> SmallShardCases() {
  std::vector<ShardCase> cases;
  for (const ModelShape& model :
       {TinyGpt2(true), TinyGpt2(false), TinyLlama(true), TinyLlama(false)}) {
    for (int dp = 1; dp <= 2; ++dp) {
      for (int pp = 1; pp <= 5; ++pp) {
        for (int tp = 1; tp <= 4; ++tp) {
          Layout layout;
          layout.dp = dp;
          layout.pp = pp;
          layout.tp = tp;
          const auto add = [&] {
            const int64_t samples = dp * layout.gradient_accumulation_steps;
            const BatchShape batch = {.global_batch_size = samples, .seq_len = 4};
            if (!CheckRunnable(model, ManySlots(), batch, layout).ok()) return;
            cases.push_back({model, layout});
          };
          add();
          if (pp != 2) continue;
          layout.layers_per_stage = {1, 4};
          add();
          layout.layers_per_stage.clear();
          layout.pp_schedule = ScheduleKind::kInterleaved;
          layout.virtual_stages = 2;
          layout.gradient_accumulation_steps = 2;
          add();
        }
      }
    }
  }
  return cases;
}

// Adds 1 at each element of the whole tensor that `shard` covers.
void Count(const TensorShard& shard, std::vector<int>& counts) {
  const std::vector<int64_t>& dims = shard.tensor.dims;
  const int64_t columns = dims.size() == 2 ? dims[1] : 1;
  const int64_t column_begin = dims.size() == 2 ? shard.begin[1] : 0;
  const int64_t column_end = dims.size() == 2 ? shard.end[1] : 1;
  for (int64_t row = shard.begin[0]; row < shard.end[0]; ++row) {
    for (int64_t column = column_begin; column < column_end; ++column) {
      ++counts[static_cast<size_t>(row * columns + column)];
    }
  }
}

TEST(SmallShardCases, AreManyAndCutEveryAxis) {
  const std::vector<ShardCase> cases = SmallShardCases();
  // tp 1, 2, 4, the last of which shares llama's 2 kv heads; both tied and not, 2 dp; pp 1 to 5, of
  // 2 stages also an uneven pair, and one of two chunks each.
  EXPECT_EQ(std::ssize(cases), (3 + 3) * 2 * 2 * (5 + 2));
}

TEST(ShardsOf, PrimariesOfAReplicaTileEachTensorExactlyOnce) {
  for (const ShardCase& c : SmallShardCases()) {
    SCOPED_TRACE(c.text());
    const RankGrid grid = c.layout.grid();
    for (int dp_index = 0; dp_index < c.layout.dp; ++dp_index) {
      std::map<std::string, std::vector<int>> counts;
      for (const TensorSpec& tensor : Tensors(c.model)) {
        counts[tensor.name].resize(static_cast<size_t>(tensor.elements()));
      }
      for (const int rank : grid.ReplicaGroupOf(grid.RankOf({.dp = dp_index}))) {
        for (const TensorShard& shard : ShardsOf(c.model, c.layout, rank)) {
          if (shard.primary) Count(shard, counts.at(shard.tensor.name));
        }
      }
      for (const auto& [name, covered] : counts) {
        EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), std::ssize(covered)) << name;
      }
    }
  }
}

TEST(ShardsOf, NeighboursShareAKvHeadThatIsNotThereForEach) {
  Layout layout;
  layout.tp = 4;
  const ModelShape model = TinyLlama(true);  // 2 kv heads of 2
  EXPECT_EQ(KvHeadCopies(model, layout), 2);
  std::vector<std::string> keys;
  for (int rank = 0; rank < 4; ++rank) {
    for (const TensorShard& shard : ShardsOf(model, layout, rank)) {
      const bool is_shared = shard.tensor.name.find(".attn.k.") != std::string::npos ||
                             shard.tensor.name.find(".attn.v.") != std::string::npos;
      EXPECT_EQ(shard.gradient_parts, is_shared ? 2 : 1) << ShardText(shard);
      if (shard.tensor.name != "blocks.0.attn.k.weight") continue;
      keys.push_back(absl::StrCat(ShardText(shard), shard.primary ? " primary" : ""));
    }
  }
  EXPECT_EQ(keys,
            (std::vector<std::string>{
                "blocks.0.attn.k.weight[0:2,0:8] primary", "blocks.0.attn.k.weight[0:2,0:8]",
                "blocks.0.attn.k.weight[2:4,0:8] primary", "blocks.0.attn.k.weight[2:4,0:8]"}));
  layout.tp = 2;
  EXPECT_EQ(KvHeadCopies(model, layout), 1);
}

// Whoever sees all tokens has the whole gradient: biases of o and down, positions.
TEST(ShardsOf, NormsHaveAPartOfTheirGradientOnEachRankThatHasAPartOfTheTokens) {
  Layout layout;
  layout.tp = 2;
  layout.sequence_parallel = true;
  for (const ModelShape& model : {TinyGpt2(true), TinyLlama(true)}) {
    for (const TensorShard& shard : ShardsOf(model, layout, 1)) {
      const bool is_norm = absl::StrContains(shard.tensor.name, "norm");
      EXPECT_EQ(shard.gradient_parts, is_norm ? 2 : 1) << ShardText(shard);
    }
  }
}

TEST(ShardsOf, DataRanksHoldTheSame) {
  for (const ShardCase& c : SmallShardCases()) {
    SCOPED_TRACE(c.text());
    const RankGrid grid = c.layout.grid();
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      const std::vector<TensorShard> mine = ShardsOf(c.model, c.layout, rank);
      const std::vector<TensorShard> first =
          ShardsOf(c.model, c.layout, grid.GroupOf(Axis::kData, rank).front());
      ASSERT_EQ(mine.size(), first.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(ShardText(mine[i]), ShardText(first[i]));
        EXPECT_EQ(mine[i].primary, first[i].primary);
      }
    }
  }
}

TEST(ShardsOf, ComeInNetworkOrderAndAreNeverEmpty) {
  for (const ShardCase& c : SmallShardCases()) {
    SCOPED_TRACE(c.text());
    std::map<std::string, int> order;
    for (const TensorSpec& tensor : Tensors(c.model)) {
      order.emplace(tensor.name, static_cast<int>(order.size()));
    }
    for (int rank = 0; rank < c.layout.world_size(); ++rank) {
      std::vector<TensorShard> shards = ShardsOf(c.model, c.layout, rank);
      const int stage = c.layout.grid().CoordinatesOf(rank).pp;
      if (c.model.tied_embeddings && stage > 0 && stage == c.layout.pp - 1) {
        EXPECT_EQ(shards.back().tensor.name, kTokenEmbeddingName);
        EXPECT_FALSE(shards.back().primary);
        shards.pop_back();
      }
      int last = -1;
      for (const TensorShard& shard : shards) {
        EXPECT_GT(order.at(shard.tensor.name), last) << shard.tensor.name;
        last = order.at(shard.tensor.name);
        EXPECT_GE(shard.elements(), 1) << ShardText(shard);
        // Heads are never cut.
        for (size_t d = 0; d < shard.begin.size(); ++d) {
          if (static_cast<int>(d) != shard.tensor.split_dim) continue;
          EXPECT_EQ(shard.begin[d] % shard.tensor.split_unit, 0) << ShardText(shard);
          EXPECT_EQ(shard.end[d] % shard.tensor.split_unit, 0) << ShardText(shard);
        }
      }
    }
  }
}

TEST(ShardsOf, TheTiedCopyIsTheSameShareAsOnTheFirstStage) {
  for (const ShardCase& c : SmallShardCases()) {
    if (!c.model.tied_embeddings || c.layout.pp == 1) continue;
    SCOPED_TRACE(c.text());
    for (int tp_index = 0; tp_index < c.layout.tp; ++tp_index) {
      const int first_rank = c.layout.grid().RankOf({.tp = tp_index});
      const std::vector<int> ends = c.layout.grid().EmbeddingGroupOf(first_rank);
      ASSERT_EQ(ends.size(), 2U);
      EXPECT_EQ(ShardText(ShardsOf(c.model, c.layout, ends[1]).back()),
                ShardText(ShardsOf(c.model, c.layout, ends[0]).front()));
    }
  }
}

int64_t LargestRank(const ModelShape& model, const Layout& layout) {
  int64_t largest = 0;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    int64_t elements = 0;
    for (const TensorShard& shard : ShardsOf(model, layout, rank)) elements += shard.elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

TEST(ShardsOf, TheLargestRankNeverGrowsWithAnAxis) {
  for (const ShardCase& small : SmallShardCases()) {
    for (const ShardCase& large : SmallShardCases()) {
      const bool wider = large.layout.tp >= small.layout.tp && large.layout.pp >= small.layout.pp &&
                         large.layout.dp >= small.layout.dp;
      if (!(large.model == small.model) || !wider) continue;
      if (!small.layout.layers_per_stage.empty() || !large.layout.layers_per_stage.empty())
        continue;
      EXPECT_LE(LargestRank(large.model, large.layout), LargestRank(small.model, small.layout))
          << small.text() << " -> " << large.text();
    }
  }
}

TEST(ShardsOf, CutsHeadsRowsAndColumns) {
  Layout layout;
  layout.tp = 2;
  layout.pp = 2;
  std::vector<std::string> texts;
  for (const TensorShard& shard : ShardsOf(TinyLlama(true), layout, /*rank=*/3)) {
    if (shard.tensor.block > 3) continue;  // the second stage's first block is 3
    texts.push_back(ShardText(shard) + (shard.primary ? "" : " copy"));
  }
  EXPECT_THAT(texts, testing::ElementsAre(
                         "blocks.3.norm1.weight[0:8] copy", "blocks.3.attn.q.weight[4:8,0:8]",
                         "blocks.3.attn.k.weight[2:4,0:8]", "blocks.3.attn.v.weight[2:4,0:8]",
                         "blocks.3.attn.o.weight[0:8,4:8]", "blocks.3.norm2.weight[0:8] copy",
                         "blocks.3.mlp.gate.weight[6:12,0:8]", "blocks.3.mlp.up.weight[6:12,0:8]",
                         "blocks.3.mlp.down.weight[0:8,6:12]", "final_norm.weight[0:8] copy",
                         "embed.tokens.weight[6:11,0:8] copy"));
}

TEST(ShardsOf, HoldTheBlocksOfAllChunksOfAStage) {
  Layout layout;
  layout.pp = 2;
  layout.pp_schedule = ScheduleKind::kInterleaved;
  layout.virtual_stages = 2;
  std::vector<std::string> norms;
  for (const TensorShard& shard : ShardsOf(TinyLlama(true), layout, /*rank=*/1)) {
    if (absl::EndsWith(shard.tensor.name, "norm1.weight")) norms.push_back(shard.tensor.name);
  }
  // Blocks 0 and 1, then 2 on this stage, 3, then 4 on this stage.
  EXPECT_THAT(norms, testing::ElementsAre("blocks.2.norm1.weight", "blocks.4.norm1.weight"));
}

TEST(SplitRange, TilesTheExtentOnUnitsWithinOneUnitOfEven) {
  for (int64_t unit = 1; unit <= 3; ++unit) {
    for (int64_t units = 1; units <= 12; ++units) {
      for (int parts = 1; parts <= units; ++parts) {
        int64_t end = 0;
        for (int part = 0; part < parts; ++part) {
          const Range range = SplitRange(units * unit, unit, parts, part);
          EXPECT_EQ(range.begin, end);
          EXPECT_EQ(range.size() % unit, 0);
          EXPECT_GE(range.size() / unit, units / parts);
          EXPECT_LE(range.size() / unit, units / parts + 1);
          end = range.end;
        }
        EXPECT_EQ(end, units * unit) << units << " units of " << unit << " in " << parts;
      }
    }
  }
}

// The step has an action for such sums (plan/schedule/step_schedule.h) exactly then.
TEST(HasGradientParts, IsTrueWhereSomeShardHasThem) {
  ModelShape qwen3 = TinyLlama(false);
  SetArchitecture(Architecture::kQwen3, qwen3);
  for (const ModelShape& model : {TinyGpt2(true), TinyLlama(false), qwen3}) {
    for (const int tp : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && tp == 1) continue;
        const Layout layout = {.tp = tp, .sequence_parallel = sequence_parallel};
        bool has = false;
        for (const TensorShard& shard : ShardsOf(model, layout, 0)) {
          has = has || shard.gradient_parts > 1;
        }
        EXPECT_EQ(HasGradientParts(model, layout), has)
            << ModelTypeOf(model) << " " << LayoutText(layout);
      }
    }
  }
}

}  // namespace
}  // namespace weft
