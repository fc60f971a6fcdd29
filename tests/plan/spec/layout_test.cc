#include "plan/spec/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "plan/spec/model.h"
#include "plan/spec/spec_issue.h"

namespace weft {
namespace {

ModelShape SmallGpt2() {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = 256;
  model.hidden_size = 96;
  model.num_blocks = 4;
  model.num_heads = 12;
  model.num_kv_heads = 12;
  model.head_dim = 8;
  model.ffn_size = 384;
  model.max_positions = 128;
  return model;
}

ModelShape Llama8b() {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
  model.vocab_size = 128256;
  model.hidden_size = 4096;
  model.num_blocks = 32;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.ffn_size = 14336;
  model.max_positions = 8192;
  model.tied_embeddings = false;
  return model;
}

Cluster Slots(int nodes, int slots_per_node) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.slots_per_node = slots_per_node;
  return cluster;
}

// A layout that keeps the batch equation for global_batch_size = dp.
Layout Degrees(int dp, int tp, int pp) {
  Layout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.pp = pp;
  return layout;
}

absl::Status Check(const ModelShape& model, const Cluster& cluster, const Layout& layout) {
  const int64_t samples = layout.dp * layout.micro_batch_size * layout.gradient_accumulation_steps;
  return CheckLayout(model, cluster, {.global_batch_size = samples, .seq_len = 64}, layout);
}

TEST(StageBlocksBefore, CountsThoseOfAllChunksOfAStage) {
  const auto expect_counted = [](const Layout& layout, int64_t num_blocks) {
    for (int64_t end = 0; end <= num_blocks; ++end) {
      for (int stage = 0; stage < layout.pp; ++stage) {
        int64_t count = 0;
        for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
          const BlockRange blocks = ChunkBlocks(layout, num_blocks, stage, chunk);
          for (int64_t block = blocks.begin; block < blocks.end; ++block) count += block < end;
        }
        EXPECT_EQ(StageBlocksBefore(layout, num_blocks, stage, end), count)
            << LayoutText(layout) << ", stage " << stage << ", before " << end;
      }
    }
  };
  for (const int64_t num_blocks : {7, 12}) {
    for (const int pp : {1, 2, 3, 5}) {
      for (const int chunks : {1, 2}) {
        Layout layout = {.pp = pp, .virtual_stages = chunks};
        if (chunks > 1) layout.pp_schedule = ScheduleKind::kInterleaved;
        expect_counted(layout, num_blocks);
      }
    }
  }
  expect_counted({.pp = 3, .layers_per_stage = {1, 4, 2}}, 7);
}

TEST(EngineIssues, NameWhatIsNotBuiltYet) {
  ModelShape model = SmallGpt2();
  SetArchitecture(Architecture::kLlama, model);
  model.num_experts = 8;
  const absl::Status refused = absl::InvalidArgumentError(
      "model.num_local_experts: 8 is not supported yet; use a model without experts");
  Layout layout = Degrees(2, 1, 1);
  layout.ep = 2;
  const BatchShape batch = {.global_batch_size = 2, .seq_len = 64};
  EXPECT_EQ(CheckLayout(model, Slots(1, 8), batch, layout), absl::OkStatus());
  const std::vector<SpecIssue> issues = EngineIssues(model, layout);
  EXPECT_EQ(FirstIssue(issues), refused);
  ASSERT_EQ(issues.size(), 2u);
  EXPECT_EQ(FirstIssue({issues[1]}),
            absl::InvalidArgumentError("parallelism.ep: 2 is not supported yet; use 1"));
  EXPECT_EQ(CheckRunnable(model, Slots(1, 8), batch, layout), refused);
}

TEST(CheckLayout, RefusesWhatNoEngineCouldRun) {
  struct Case {
    const char* issue;
    void (*change)(Layout&);
  };
  const Case cases[] = {
      {"parallelism.zero_stage: 4 is not a stage of ZeRO; use 0, 1, 2 or 3",
       [](Layout& l) { l.zero_stage = 4; }},
      {"parallelism.ep: 2 with a model without experts; use 1", [](Layout& l) { l.ep = 2; }},
      {"parallelism.virtual_stages: 2 with pp_schedule 1f1b; use 1, or pp_schedule "
       "interleaved_1f1b",
       [](Layout& l) { l.virtual_stages = 2; }},
      {"parallelism.zero_hpz_partition_size: 3 does not divide the data group 2; use 1 or 2",
       [](Layout& l) {
         l.zero_stage = 1;
         l.zero_hpz_partition_size = 3;
       }},
      {"parallelism.zero_hpz_partition_size: 2 with zero_stage 0, which cuts nothing; use "
       "zero_stage 1, 2 or 3, or leave it out",
       [](Layout& l) { l.zero_hpz_partition_size = 2; }},
      {"parallelism.sequence_parallel: true with tp 1, where nobody shares a sequence; use false, "
       "or tp 2 or more",
       [](Layout& l) { l.sequence_parallel = true; }},
      {"activation_checkpointing.per_stage: names 1 stages; name each of parallelism.pp 2",
       [](Layout& l) { l.recompute_per_stage = {Recompute::kFull}; }},
      {"parallelism.layers_per_stage: 1, 1 are not 2 positive numbers that sum to n_layer 4",
       [](Layout& l) {
         l.layers_per_stage = {1, 1};
       }},
      {"parallelism.pp_schedule: interleaved_1f1b with 1 microbatches, which are not a multiple of "
       "parallelism.pp 2; use 1f1b",
       [](Layout& l) {
         l.pp_schedule = ScheduleKind::kInterleaved;
         l.virtual_stages = 2;
       }},
  };
  for (const Case& c : cases) {
    Layout layout = Degrees(2, 1, 2);
    c.change(layout);
    EXPECT_EQ(Check(SmallGpt2(), Slots(1, 8), layout), absl::InvalidArgumentError(c.issue));
  }
}

TEST(ChunkBlocks, TileTheModelInNetworkOrder) {
  Layout layout = Degrees(1, 1, 2);
  layout.pp_schedule = ScheduleKind::kInterleaved;
  layout.virtual_stages = 2;
  int64_t begin = 0;
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int stage = 0; stage < 2; ++stage) {
      const BlockRange range = ChunkBlocks(layout, 7, stage, chunk);
      EXPECT_EQ(range.begin, begin);
      begin = range.end;
    }
  }
  EXPECT_EQ(begin, 7);
  EXPECT_EQ(StageBlockCount(layout, 7, 0), 4);
  Layout listed = Degrees(1, 1, 3);
  listed.layers_per_stage = {1, 4, 2};
  EXPECT_EQ(ChunkBlocks(listed, 7, 1, 0).begin, 1);
  EXPECT_EQ(ChunkBlocks(listed, 7, 2, 0).end, 7);
}

TEST(StageBlockCount, IsTheSumOfTheStagesChunks) {
  for (int stages = 1; stages <= 7; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      Layout layout = Degrees(1, 1, stages);
      layout.virtual_stages = chunks;
      for (int64_t blocks = 1; blocks <= 30; ++blocks) {
        for (int stage = 0; stage < stages; ++stage) {
          int64_t sum = 0;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            sum += ChunkBlocks(layout, blocks, stage, chunk).size();
          }
          EXPECT_EQ(StageBlockCount(layout, blocks, stage), sum)
              << blocks << " blocks, stage " << stage << " of " << stages << " x " << chunks;
        }
      }
    }
  }
}

TEST(CheckLayout, NamesTheBrokenDegreeAndTheValuesThatWouldPass) {
  ModelShape narrow = SmallGpt2();
  narrow.vocab_size = 3;
  ModelShape six_kv_heads = Llama8b();
  six_kv_heads.num_heads = 12;
  six_kv_heads.num_kv_heads = 6;
  six_kv_heads.ffn_size = 14336 * 3;
  Cluster gpus = Slots(1, 8);
  gpus.device.backend = BackendKind::kCuda;
  const struct {
    ModelShape model;
    Cluster cluster;
    Layout layout;
    const char* message;
  } cases[] = {
      {SmallGpt2(), Slots(1, 64), Degrees(1, 5, 1),
       "parallelism.tp: 5 does not divide n_head 12; use 1, 2, 3, 4, 6 or 12"},
      // With dp=2 and 8 slots, at most 4 tensor ranks are left.
      {SmallGpt2(), Slots(2, 5), Degrees(2, 5, 1),
       "parallelism.tp: 5 does not divide n_head 12; use 1, 2, 3 or 4"},
      {Llama8b(), Slots(8, 8), Degrees(1, 3, 1),
       "parallelism.tp: 3 does not divide num_attention_heads 32; use 1, 2, 4, 8, 16 or 32"},
      {six_kv_heads, Slots(8, 8), Degrees(1, 4, 1),
       "parallelism.tp: 4 does not divide num_key_value_heads 6; use 1, 2, 3 or 6"},
      {narrow, Slots(1, 8), Degrees(1, 4, 1),
       "parallelism.tp: 4 is more than vocab_size 3; use 1, 2 or 3"},
      {SmallGpt2(), Slots(1, 8), Degrees(1, 1, 5),
       "parallelism.pp: 5 is more than n_layer 4; use 1 to 4"},
      {SmallGpt2(), Slots(1, 4), Degrees(0, 1, 1),
       "parallelism.dp: 0 is too few; use 1 or more, or auto"},
      {SmallGpt2(), Slots(1, 4), Degrees(1, -2, 1),
       "parallelism.tp: -2 is too few; use 1 or more, or auto"},
      {SmallGpt2(), Slots(1, 4), Degrees(5, 1, 1),
       "parallelism.dp: 5 is more than the number of slots 4 (cluster.nodes 1 x cluster.slots 4); "
       "use at most 4, or more slots"},
      {SmallGpt2(), gpus, Degrees(2, 4, 2),
       "parallelism: dp 2 x tp 4 x pp 2 = 16 workers are more than the number of slots 8 "
       "(cluster.nodes 1 x cluster.gpus_per_node 8); lower a degree or use more slots"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Check(c.model, c.cluster, c.layout), absl::InvalidArgumentError(c.message));
  }
}

TEST(CheckLayout, RefusesAFeedForwardWidthThatDoesNotDivide) {
  ModelShape model = SmallGpt2();
  model.ffn_size = 18;
  EXPECT_EQ(
      Check(model, Slots(1, 64), Degrees(1, 4, 1)),
      absl::InvalidArgumentError("parallelism.tp: 4 does not divide n_inner 18; use 1, 2, 3 or 6"));
}

TEST(CheckLayout, AcceptsExactlyWhatTheRulesSay) {
  // One more than 14 slots is dp=5 x pp=3: no degree of it is too large alone.
  const Cluster cluster = Slots(2, 7);
  int accepted = 0;
  for (int dp = 0; dp <= 15; ++dp) {
    for (int tp = 0; tp <= 15; ++tp) {
      for (int pp = 0; pp <= 15; ++pp) {
        const bool degrees_exist = dp >= 1 && tp >= 1 && pp >= 1;
        const bool expected = degrees_exist && dp * tp * pp <= 14 && 12 % tp == 0 && pp <= 4;
        const absl::Status status = Check(SmallGpt2(), cluster, Degrees(dp, tp, pp));
        EXPECT_EQ(status.ok(), expected)
            << "dp=" << dp << " tp=" << tp << " pp=" << pp << " " << status;
        accepted += status.ok() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(accepted, 30);
}

// The numbers after "use" in `message`.
std::vector<int> Suggested(const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.find("; use ");
  if (at == std::string::npos) return {};
  const std::string list = absl::StrReplaceAll(message.substr(at + 6), {{" or ", " "}, {",", ""}});
  std::vector<int> numbers;
  for (const absl::string_view word : absl::StrSplit(list, ' ')) {
    int number = 0;
    if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
  }
  return numbers;
}

TEST(CheckLayout, TheTensorDegreesItSuggestsDoPass) {
  int suggestions = 0;
  for (const ModelShape& model : {SmallGpt2(), Llama8b()}) {
    for (int tp = 1; tp <= 24; ++tp) {
      for (const int dp : {1, 2, 3}) {
        for (const int pp : {1, 2, 4}) {
          const Cluster cluster = Slots(9, 24);
          const absl::Status status = Check(model, cluster, Degrees(dp, tp, pp));
          if (status.ok() || status.message().find("does not divide") == std::string::npos)
            continue;
          ASSERT_FALSE(Suggested(status).empty()) << status;
          for (const int suggested : Suggested(status)) {
            EXPECT_TRUE(Check(model, cluster, Degrees(dp, suggested, pp)).ok())
                << status << " -> " << suggested;
            ++suggestions;
          }
        }
      }
    }
  }
  EXPECT_GT(suggestions, 100);
}

struct BatchCase {
  BatchShape batch;
  std::optional<int64_t> dp;
  std::optional<int64_t> micro;
  std::optional<int64_t> accumulation;
  std::vector<std::string> issues;  // "key: message"
};

void ExpectIssues(const std::vector<BatchCase>& cases) {
  for (const BatchCase& c : cases) {
    std::vector<std::string> found;
    for (const SpecIssue& issue :
         BatchIssues(SmallGpt2(), c.batch, c.dp, c.micro, c.accumulation)) {
      found.push_back(absl::StrCat(issue.key, ": ", issue.message));
    }
    EXPECT_EQ(found, c.issues);
  }
}

TEST(BatchIssues, HoldsTheBatchEquationAsFarAsItIsKnown) {
  const auto none = std::nullopt;
  ExpectIssues({
      {{8, 64}, none, none, none, {}},
      {{8, 64}, 2, none, none, {}},
      {{8, 64}, 2, 2, 2, {}},
      {{8, 64}, none, 2, 4, {}},
      {{8, 64},
       3,
       none,
       none,
       {"parallelism.dp: 3 does not divide training.global_batch_size 8; use 1, 2, 4 or 8"}},
      {{8, 64},
       none,
       5,
       none,
       {"training.micro_batch_size: 5 does not divide training.global_batch_size 8; use 1, 2, 4 or "
        "8"}},
      {{8, 64},
       none,
       none,
       16,
       {"training.gradient_accumulation_steps: 16 does not divide training.global_batch_size 8; "
        "use 1, 2, 4 or 8"}},
      {{8, 64},
       2,
       3,
       none,
       {"training.global_batch_size: 8 is not a multiple of training.micro_batch_size 3 x "
        "parallelism.dp 2 = 6; use a multiple of 6, or auto for one of the others"}},
      {{8, 64},
       2,
       3,
       2,
       {"training.global_batch_size: 8 is not training.micro_batch_size 3 x "
        "training.gradient_accumulation_steps 2 x parallelism.dp 2 = 12; use 12, or auto for one "
        "of the others"}},
      {{8, 64},
       1,
       2,
       2,
       {"training.global_batch_size: 8 is not training.micro_batch_size 2 x "
        "training.gradient_accumulation_steps 2 x parallelism.dp 1 = 4; use 4, or auto for one of "
        "the others"}},
  });
}

TEST(BatchIssues, NamesEveryValueOutOfRange) {
  const auto none = std::nullopt;
  ExpectIssues({
      {{0, 64},
       none,
       none,
       none,
       {"training.global_batch_size: 0 is out of range; use 1 to 1048576"}},
      {{8, 129},
       none,
       -1,
       int64_t{1} << 40,
       {"training.seq_len: 129 is more than model.n_positions 128; use at most 128",
        "training.micro_batch_size: -1 is out of range; use 1 to 1048576",
        "training.gradient_accumulation_steps: 1099511627776 is out of range; use 1 to 1048576"}},
      {{8, 0},
       none,
       none,
       none,
       {"training.seq_len: 0 is too short; use 1 to model.n_positions 128"}},
  });
}

TEST(BatchIssues, FactorsOfAnySizeDoNotOverflow) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const std::vector<SpecIssue> issues = BatchIssues(SmallGpt2(), {kMost, 64}, kMost, kMost, kMost);
  ASSERT_EQ(issues.size(), 1U);
  EXPECT_THAT(issues[0].message, testing::HasSubstr("= 1152921504606846976; use "));
}

TEST(CheckLayout, HoldsTheBatchEquation) {
  Layout layout = Degrees(2, 1, 1);
  layout.micro_batch_size = 3;
  layout.gradient_accumulation_steps = 2;
  const Cluster cluster = Slots(1, 2);
  EXPECT_TRUE(CheckLayout(SmallGpt2(), cluster, {12, 64}, layout).ok());
  EXPECT_EQ(CheckLayout(SmallGpt2(), cluster, {8, 64}, layout),
            absl::InvalidArgumentError(
                "training.global_batch_size: 8 is not training.micro_batch_size 3 x "
                "training.gradient_accumulation_steps 2 x parallelism.dp 2 = 12; use 12, or auto "
                "for one of the others"));
  EXPECT_EQ(CheckLayout(SmallGpt2(), cluster, {12, 256}, layout),
            absl::InvalidArgumentError(
                "training.seq_len: 256 is more than model.n_positions 128; use at most 128"));
}

TEST(EvenSplit, TilesTheExtentAndGivesEarlierPartsTheRemainder) {
  for (int64_t blocks = 1; blocks <= 20; ++blocks) {
    for (int stages = 1; stages <= blocks; ++stages) {
      int64_t end = 0;
      int64_t last_size = blocks;
      for (int stage = 0; stage < stages; ++stage) {
        const BlockRange range = EvenSplit(blocks, stages, stage);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.size(), blocks / stages);
        EXPECT_LE(range.size(), last_size);
        last_size = range.size();
        end = range.end;
      }
      EXPECT_EQ(end, blocks) << stages << " stages";
    }
  }
  EXPECT_EQ(EvenSplit(5, 2, 0).size(), 3);
}

TEST(LayoutText, CountsNeighboursThatAreAlikeInALongSplit) {
  Layout layout = Degrees(1, 1, 8);
  layout.layers_per_stage = {1, 2, 2, 2, 2, 2, 2, 1};
  EXPECT_THAT(LayoutText(layout), testing::EndsWith(" layers_per_stage=1,2,2,2,2,2,2,1"));
  layout = Degrees(1, 1, 9);
  layout.layers_per_stage = {3, 2, 2, 2, 2, 2, 2, 1, 1};
  EXPECT_THAT(LayoutText(layout), testing::EndsWith(" layers_per_stage=3,6x2,2x1"));
}

TEST(LayoutText, ShowsDegreesScheduleAndBatchCut) {
  Layout layout = Degrees(2, 1, 2);
  layout.micro_batch_size = 4;
  layout.gradient_accumulation_steps = 2;
  EXPECT_EQ(LayoutText(layout),
            "dp=2 tp=1 pp=2 pp_schedule=1f1b micro_batch_size=4 gradient_accumulation_steps=2");
  layout.pp_schedule = ScheduleKind::kGpipe;
  layout.cp = 2;
  layout.zero_stage = 1;
  EXPECT_EQ(LayoutText(layout),
            "dp=2 tp=1 pp=2 cp=2 zero_stage=1 pp_schedule=gpipe micro_batch_size=4 "
            "gradient_accumulation_steps=2");
}

TEST(Schedule, IsParsedByItsName) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                  ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1}) {
    ASSERT_TRUE(ParseWord<ScheduleKind>(WordOf(kind), "a schedule that weft knows").ok());
    EXPECT_EQ(*ParseWord<ScheduleKind>(WordOf(kind), "a schedule that weft knows"), kind);
  }
  EXPECT_EQ(ParseWord<ScheduleKind>("zb_h2", "a schedule that weft knows").status(),
            absl::InvalidArgumentError("\"zb_h2\" is not a schedule that weft knows; use gpipe, "
                                       "1f1b, interleaved_1f1b or zb_h1"));
}

TEST(HeadChunks, AreThePiecesOfAMicrobatch) {
  constexpr int64_t kSeqLen = 1024;
  const auto chunks = [](int64_t tokens) {  // of 1536 on a rank
    return Layout{.cp = 2, .micro_batch_size = 3, .head_chunk_tokens = tokens}.head_chunks(kSeqLen);
  };
  EXPECT_EQ(chunks(0), 1);
  EXPECT_EQ(chunks(4096), 1);
  EXPECT_EQ(chunks(512), 3);
  EXPECT_EQ(chunks(500), 4);
  EXPECT_EQ(chunks(1), 512);  // no more than a sequence has tokens on a rank
}

}  // namespace
}  // namespace weft
