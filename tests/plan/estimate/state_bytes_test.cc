#include "plan/estimate/state_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "plan/block/tensors.h"
#include "plan/shards/shard.h"
#include "plan/spec/layout_text.h"
#include "plan/spec/lora.h"
#include "tests/plan/estimate/sample_questions.h"

namespace weft {
namespace {

// With the vocabulary as it is, not padded: to be held against the inventory.
Question Unpadded(const ModelShape& model) {
  Question question = QuestionAbout(model, 1024, "weft", Precision::kFp32);
  question.engine.memory.vocabulary_multiple = 1;
  return question;
}

TEST(ParametersOf, AreTheInventorysOnOneRank) {
  ModelShape untied = Gpt2Of(12, 768, 12, 50257, 1024);
  untied.tied_embeddings = false;
  ModelShape biased = Llama70b();
  biased.attention_bias = true;
  for (const ModelShape& model : {Gpt2Of(12, 768, 12, 50257, 1024), untied, Llama70b(), biased,
                                  Mixtral(), DeepseekV3(), Nemotron340b(), Qwen30bA3b()}) {
    const StageParameters parameters = ParametersOf(Unpadded(model), Layout{}, 0);
    EXPECT_EQ(static_cast<int64_t>(parameters.all()), ParameterCount(model));
  }
}

TEST(ParametersOf, AreOnAllStagesTheWholeWithATiedTableTwice) {
  const ModelShape model = Gpt2Of(12, 768, 12, 50257, 1024);
  for (const int pp : {2, 3, 4, 5}) {
    double sum = 0;
    for (int stage = 0; stage < pp; ++stage) {
      sum += ParametersOf(Unpadded(model), {.pp = pp}, stage).all();
    }
    EXPECT_EQ(static_cast<int64_t>(sum), ParameterCount(model) + 50257 * 768) << "pp " << pp;
  }
}

TEST(ParametersOf, KeepAWholeKvHeadOnEachRankWhereHeadsAreFewerThanRanks) {
  const Question question = Unpadded(Llama70b());
  const auto kv_of = [&](int tp) {
    // All of one block but keys and values is cut evenly.
    const double even = 8192.0 * (2 * 8192 + 3 * 28672) / tp;
    return BlockParameters(question, {.tp = tp}).linear - even;
  };
  EXPECT_EQ(kv_of(8), 8192.0 * 2 * 128);
  EXPECT_EQ(kv_of(16), 8192.0 * 2 * 128);
  EXPECT_EQ(kv_of(64), 8192.0 * 2 * 128);
}

TEST(ParametersOf, HoldAShareOfTheExperts) {
  const Question question = Unpadded(Mixtral());
  const double all = BlockParameters(question, Layout{}).experts;
  EXPECT_EQ(all, 8.0 * 3 * 4096 * 14336);
  EXPECT_EQ(BlockParameters(question, {.dp = 8, .ep = 4}).experts, all / 4);
  EXPECT_EQ(BlockParameters(question, {.dp = 8, .tp = 2, .ep = 4}).experts, all / 8);
}

// The first three of 61 blocks are dense, wherever the stages' borders are.
TEST(ParametersOf, AreOnAllStagesTheWholeWhereTheFirstBlocksAreDense) {
  const ModelShape model = DeepseekV3();
  const Question question = Unpadded(model);
  for (const Layout& layout :
       {Layout{.pp = 2}, Layout{.pp = 16},
        Layout{.pp = 4, .pp_schedule = ScheduleKind::kInterleaved, .virtual_stages = 15},
        Layout{.pp = 3, .layers_per_stage = {1, 1, 59}}, Layout{.pp = 61}}) {
    double sum = 0;
    for (int stage = 0; stage < layout.pp; ++stage) {
      sum += ParametersOf(question, layout, stage).all();
    }
    EXPECT_EQ(static_cast<int64_t>(sum), ParameterCount(model)) << LayoutText(layout);
  }
  EXPECT_EQ(ParametersOf(question, {.pp = 61}, 2).experts, 0);
  EXPECT_EQ(ParametersOf(question, {.pp = 61}, 3).experts, 256.0 * 3 * 7168 * 2048);
}

// Megatron-Core's parallel folding: experts are cut by etp and ep, whatever tp is.
TEST(ParametersOf, CutExpertsByATensorParallelDegreeOfTheirOwn) {
  const Question question = Unpadded(Mixtral());
  const double all = BlockParameters(question, Layout{}).experts;
  EXPECT_EQ(BlockParameters(question, {.tp = 8, .ep = 8, .etp = 1}).experts, all / 8);
  EXPECT_EQ(BlockParameters(question, {.tp = 8, .ep = 4, .etp = 2}).experts, all / 8);
  EXPECT_EQ(BlockParameters(question, {.tp = 8, .etp = 1}).experts, all);
  EXPECT_EQ(BlockParameters(question, {.tp = 8, .etp = 8}).experts, all / 8);
}

// 32 ranks: those with the same experts are 32 / (ep x etp), those with the same dense weights 4.
TEST(StatesOf, SpreadExpertsThatTensorParallelRanksDoNotShareOverMoreRanks) {
  const Question question = QuestionAbout(Mixtral(), 1024, "megatron", Precision::kBf16);
  StageParameters parameters;
  parameters.experts = 1e6;
  const Layout layout = {.dp = 4, .tp = 8, .zero_stage = 1, .ep = 4, .etp = 1};
  EXPECT_DOUBLE_EQ(StatesOf(question, layout, parameters).resting(), 1e6 * (6 + 12.0 / 8));
  const Layout all = {.dp = 4, .tp = 8, .zero_stage = 1, .ep = 8, .etp = 4};
  EXPECT_DOUBLE_EQ(StatesOf(question, all, parameters).resting(), 1e6 * (6 + 12.0));
}

// Bytes per parameter at n = 4 ranks; ../reference of the formulas: Rajbhandari et al.,
// arXiv:1910.02054, 3, and Megatron-LM's notes on its distributed optimizer.
TEST(StatesOf, AreTheRecipesBytesPerParameter) {
  constexpr double n = 4;
  const struct {
    const char* engine;
    Precision precision;
    double per_parameter[4];  // by ZeRO stage
  } cases[] = {
      {"megatron", Precision::kBf16, {18, 6 + 12 / n, 2 + 16 / n, 18 / n}},
      {"megatron", Precision::kFp16, {20, 4 + 16 / n, 2 + 18 / n, 20 / n}},
      {"megatron", Precision::kFp32, {16, 8 + 8 / n, 4 + 12 / n, 16 / n}},
      {"weft", Precision::kFp32, {16, 8 + 8 / n, 4 + 12 / n, 16 / n}},
      {"weft", Precision::kBf16, {18, 6 + 12 / n, 2 + 16 / n, 18 / n}},
      {"pytorch-eager", Precision::kBf16, {18, 6 + 12 / n, 2 + 16 / n, 16 / n}},
  };
  StageParameters parameters;
  parameters.linear = 1e6;
  for (const auto& c : cases) {
    const Question question = QuestionAbout(Llama70b(), 1024, c.engine, c.precision);
    for (const int zero_stage : {0, 1, 2, 3}) {
      const Layout layout = {.dp = 2, .cp = 2, .zero_stage = zero_stage};
      EXPECT_DOUBLE_EQ(StatesOf(question, layout, parameters).resting(),
                       1e6 * c.per_parameter[zero_stage])
          << c.engine << " " << WordOf(c.precision) << " zero " << zero_stage;
    }
  }
}

TEST(StatesOf, FollowTheOptimizer) {
  StageParameters parameters;
  parameters.linear = 1e6;
  parameters.rows_and_columns = 2e3;
  Question question = QuestionAbout(Llama70b(), 1024, "megatron", Precision::kBf16);
  const auto optimizer_bytes = [&](OptimizerStates optimizer) {
    question.numerics.optimizer = optimizer;
    return StatesOf(question, Layout{}, parameters).optimizer;
  };
  EXPECT_EQ(optimizer_bytes(OptimizerStates::kNone), 0);
  EXPECT_EQ(optimizer_bytes(OptimizerStates::kOneMoment), 4e6);
  EXPECT_EQ(optimizer_bytes(OptimizerStates::kTwoMoments), 8e6);
  EXPECT_EQ(optimizer_bytes(OptimizerStates::kTwoMoments8Bit), 2 * (1 + 4.0 / 256) * 1e6);
  EXPECT_EQ(optimizer_bytes(OptimizerStates::kFactored), 4 * 2e3);
}

// Whole tensors' on each rank, whatever tp and ZeRO cut: the inventory's, of the stage.
TEST(StatesOf, CountRowsAndColumnsOfTheInventory) {
  for (const ModelShape& model : {Llama70b(), Gpt2Of(12, 768, 12, 50257, 1024)}) {
    const Question question = QuestionAbout(model, 1024, "weft", Precision::kBf16);
    for (Layout layout : {Layout{}, Layout{.dp = 4, .tp = 8, .zero_stage = 1}, Layout{.pp = 4}}) {
      for (int stage = 0; stage < layout.pp; ++stage) {
        double expected = 0;
        const int rank = layout.grid().RankOf({.pp = stage});
        for (const TensorShard& shard : ShardsOf(model, layout, rank)) {
          for (const int64_t dim : shard.tensor.dims) expected += static_cast<double>(dim);
        }
        EXPECT_EQ(ParametersOf(question, layout, stage).rows_and_columns, expected)
            << LayoutText(layout) << " stage " << stage;
      }
    }
  }
}

TEST(StatesOf, SpreadExpertsOverTheirOwnDataGroup) {
  const Question question = QuestionAbout(Mixtral(), 1024, "megatron", Precision::kBf16);
  StageParameters parameters;
  parameters.experts = 1e6;
  const Layout layout = {.dp = 8, .zero_stage = 1, .ep = 4};  // each expert on 2 ranks
  EXPECT_DOUBLE_EQ(StatesOf(question, layout, parameters).resting(), 1e6 * (6 + 12 / 2.0));
}

TEST(StatesOf, ShardOverAGroupSmallerThanTheDataGroup) {
  const Question question = QuestionAbout(Llama70b(), 1024, "megatron", Precision::kBf16);
  StageParameters parameters;
  parameters.linear = 1e6;
  const Layout layout = {.dp = 32, .zero_stage = 3, .zero_hpz_partition_size = 8};
  EXPECT_DOUBLE_EQ(StatesOf(question, layout, parameters).resting(), 1e6 * 18 / 8);
}

TEST(StatesOf, PutTheUpdateOnTheHostWhereAsked) {
  const Question question = QuestionAbout(Llama70b(), 1024, "megatron", Precision::kBf16);
  StageParameters parameters;
  parameters.linear = 1e6;
  const StateBytes states = StatesOf(
      question, {.dp = 4, .zero_stage = 1, .offload_optimizer = OffloadDevice::kCpu}, parameters);
  EXPECT_EQ(states.resting(), 6e6);
  EXPECT_EQ(states.host, 16e6 / 4);  // master, two moments, the gradient that they take in
}

TEST(StatesOf, PutOnTheHostOfWeftWhatTheDeviceUpdates) {
  StageParameters parameters;
  parameters.linear = 1e6;
  const Layout layout = {.dp = 4, .zero_stage = 1, .offload_optimizer = OffloadDevice::kCpu};
  const Question narrow = QuestionAbout(Llama70b(), 1024, "weft", Precision::kBf16);
  EXPECT_EQ(StatesOf(narrow, layout, parameters).resting(), 6e6);
  EXPECT_EQ(StatesOf(narrow, layout, parameters).host, 12e6 / 4);  // master and two moments
  EXPECT_EQ(OffloadedBytes(narrow), 12);
  const Question wide = QuestionAbout(Llama70b(), 1024, "weft", Precision::kFp32);
  EXPECT_EQ(StatesOf(wide, layout, parameters).resting(), 8e6);  // weights are the master's
  EXPECT_EQ(StatesOf(wide, layout, parameters).host, 8e6 / 4);
  EXPECT_EQ(OffloadedBytes(wide), 8);
}

// 70.55e9 parameters, of them 2.1e9 in tables: "will it fit on my two cards of 24 GB".
TEST(StatesOf, OfAFrozenBaseAreItsFormatsAndTheAdaptersOwn) {
  Question question = QuestionAbout(Llama70b(), 1024, "pytorch-eager", Precision::kBf16);
  question.adapters = LowRankAdapters{
      .rank = 16, .targets = {.q = true, .v = true, .gate = true, .up = true, .down = true}};
  const StageParameters parameters = ParametersOf(question, Layout{}, 0);
  const double adapters = 80.0 * 16 * ((8192 + 8192) + (8192 + 1024) + 3 * (8192 + 28672));
  EXPECT_EQ(parameters.adapters, adapters);
  const double rest = parameters.dense() - parameters.linear;  // stays in 16 bits
  const struct {
    FrozenFormat format;
    double per_weight;
  } cases[] = {{FrozenFormat::kBf16, 2},
               {FrozenFormat::kInt8, 1},
               {FrozenFormat::kNf4, 4.5 / 8},
               {FrozenFormat::kNf4Double, (4 + 8.0 / 64 + 32.0 / (64 * 256)) / 8}};  // 4.127 bits
  for (const auto& c : cases) {
    question.adapters->frozen = c.format;
    EXPECT_DOUBLE_EQ(StatesOf(question, Layout{}, parameters).resting(),
                     c.per_weight * parameters.linear + 2 * rest + 18 * adapters);
  }
  // A card's share over two cards of 24 GB.
  const Layout two = {.dp = 2, .zero_stage = 3};
  const auto share = [&](FrozenFormat format) {
    question.adapters->frozen = format;
    return StatesOf(question, two, parameters).resting() / 1e9;
  };
  EXPECT_NEAR(share(FrozenFormat::kNf4), 22.7, 0.1);
  EXPECT_NEAR(share(FrozenFormat::kNf4Double), 21.2, 0.1);
}

// A pair of adapters beside each module that is named, of each expert its own: what PEFT makes of
// the inventory's matrices.
TEST(ParametersOf, CountAdaptersModuleByModuleAsTheInventoryHasThem) {
  const std::vector<std::pair<std::string, std::string>> modules = {
      {"q_proj", ".attn.q.weight"}, {"k_proj", ".attn.k.weight"},  {"v_proj", ".attn.v.weight"},
      {"o_proj", ".attn.o.weight"}, {"gate_proj", ".gate.weight"}, {"up_proj", ".up.weight"},
      {"down_proj", ".down.weight"}};
  ModelShape shared = Qwen30bA3b();
  shared.shared_ffn_size = 1024;
  for (const ModelShape& model : {Llama70b(), Mixtral(), Qwen30bA3b(), shared, Nemotron340b()}) {
    Question question = QuestionAbout(model, 1024, "weft", Precision::kBf16);
    const auto counted = [&](std::vector<std::string> names) {
      const LoraSpec lora{.target_modules = std::move(names)};
      question.adapters = LowRankAdapters{.rank = 16, .targets = TargetsOf(lora)};
      return ParametersOf(question, Layout{}, 0).adapters;
    };
    double sum = 0;
    std::vector<std::string> all;
    for (const auto& [name, ending] : modules) {
      double adapters = 0;
      for (const TensorSpec& tensor : Tensors(model)) {
        if (!absl::EndsWith(tensor.name, ending)) continue;
        adapters += 16.0 * static_cast<double>(tensor.dims[0] + tensor.dims[1]);
      }
      EXPECT_EQ(counted({name}), adapters) << ModelTypeOf(model) << ", " << name;
      sum += adapters;
      all.push_back(name);
    }
    EXPECT_EQ(counted(all), sum) << ModelTypeOf(model);
  }
}

TEST(ParametersOf, CountOneAdapterForGpt2sQueriesKeysAndValuesAndBothOutputs) {
  Question question =
      QuestionAbout(Gpt2Of(12, 768, 12, 50257, 1024), 1024, "weft", Precision::kBf16);
  const auto adapters = [&](std::vector<std::string> modules) {
    const LoraSpec lora{.target_modules = std::move(modules)};
    question.adapters = LowRankAdapters{.rank = 8, .targets = TargetsOf(lora)};
    return ParametersOf(question, Layout{}, 0).adapters;
  };
  EXPECT_EQ(adapters({"c_attn"}), 12.0 * 8 * (768 + 3 * 768));
  EXPECT_EQ(adapters({"c_fc"}), 12.0 * 8 * (768 + 3072));
  EXPECT_EQ(adapters({"c_proj"}), 12.0 * 8 * (768 + 768 + 768 + 3072));
}

// 128 experts of 2048 x 768: of a rank's share those that hold the same experts share the states.
TEST(StatesOf, CutTheAdaptersOfExpertsOverThoseThatHoldThem) {
  Question question = QuestionAbout(Qwen30bA3b(), 1024, "megatron", Precision::kBf16);
  const LoraTargets mlp = {.gate = true, .up = true, .down = true};
  question.adapters = LowRankAdapters{.rank = 16, .targets = mlp};
  EXPECT_EQ(BlockParameters(question, Layout{}).adapters, 128.0 * 3 * 16 * (2048 + 768));
  Layout layout = {.dp = 8, .ep = 8};
  EXPECT_EQ(BlockParameters(question, layout).expert_adapters, 16.0 * 3 * 16 * (2048 + 768));
  layout.zero_stage = 1;
  const double optimizer = StatesOf(question, layout, ParametersOf(question, layout, 0)).optimizer;
  EXPECT_EQ(optimizer, 8 * 48 * 16.0 * 3 * 16 * (2048 + 768));
}

// The example of a GPT with 12 layers, hidden 768, 12 heads, vocabulary 40,512: weight 2, gradient
// 2, fp32 gradient copy, master and two moments 16.
TEST(StatesOf, OfTheWorkedExampleAreTwentyBytesPerParameter) {
  const Question question =
      QuestionAbout(Gpt2Of(12, 768, 12, 40512, 512), 512, "megatron", Precision::kFp16);
  StageParameters parameters;
  parameters.linear = 147.0e6;
  EXPECT_EQ(StatesOf(question, Layout{}, parameters).resting(), 2940e6);
}

}  // namespace
}  // namespace weft
