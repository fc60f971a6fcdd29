#include "plan/block/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/plan/sample_models.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// "blocks.0.attn.q.weight [8,8] split 0 by 4, normal 0.02"
std::string TensorText(const TensorSpec& tensor) {
  std::string text = absl::StrCat(tensor.name, " [", absl::StrJoin(tensor.dims, ","), "]");
  if (tensor.split_dim >= 0) {
    absl::StrAppend(&text, " split ", tensor.split_dim, " by ", tensor.split_unit);
  }
  switch (tensor.initial) {
    case InitialValue::kZero:
      absl::StrAppend(&text, ", 0");
      break;
    case InitialValue::kOne:
      absl::StrAppend(&text, ", 1");
      break;
    case InitialValue::kNormal:
      absl::StrAppend(&text, ", normal ", tensor.initial_std);
      break;
  }
  return text;
}

std::vector<std::string> TensorTexts(const ModelShape& model) {
  std::vector<std::string> texts;
  for (const TensorSpec& tensor : Tensors(model)) texts.push_back(TensorText(tensor));
  return texts;
}

TEST(Tensors, OfGpt2AreTheseInThisOrder) {
  // Two blocks: residual projections start at 0.02 / sqrt(4).
  const std::string expected_block[] = {
      "norm1.weight [8], 1",
      "norm1.bias [8], 0",
      "attn.q.weight [8,8] split 0 by 4, normal 0.02",
      "attn.q.bias [8] split 0 by 4, 0",
      "attn.k.weight [8,8] split 0 by 4, normal 0.02",
      "attn.k.bias [8] split 0 by 4, 0",
      "attn.v.weight [8,8] split 0 by 4, normal 0.02",
      "attn.v.bias [8] split 0 by 4, 0",
      "attn.o.weight [8,8] split 1 by 4, normal 0.01",
      "attn.o.bias [8], 0",
      "norm2.weight [8], 1",
      "norm2.bias [8], 0",
      "mlp.up.weight [32,8] split 0 by 1, normal 0.02",
      "mlp.up.bias [32] split 0 by 1, 0",
      "mlp.down.weight [8,32] split 1 by 1, normal 0.01",
      "mlp.down.bias [8], 0",
  };
  std::vector<std::string> expected = {"embed.tokens.weight [11,8] split 0 by 1, normal 0.02",
                                       "embed.positions.weight [6,8], normal 0.02"};
  for (int block = 0; block < 2; ++block) {
    for (const std::string& text : expected_block) {
      expected.push_back(absl::StrCat("blocks.", block, ".", text));
    }
  }
  expected.push_back("final_norm.weight [8], 1");
  expected.push_back("final_norm.bias [8], 0");
  EXPECT_THAT(TensorTexts(Gpt2Of(2, 8, 2, 11, 6)), ElementsAreArray(expected));
}

TEST(Tensors, OfLlamaAreTheseInThisOrder) {
  EXPECT_THAT(
      TensorTexts(LlamaOf(1, 8, 4, 2, 12, 11)),
      ElementsAre(
          "embed.tokens.weight [11,8] split 0 by 1, normal 0.02", "blocks.0.norm1.weight [8], 1",
          "blocks.0.attn.q.weight [8,8] split 0 by 2, normal 0.02",
          "blocks.0.attn.k.weight [4,8] split 0 by 2, normal 0.02",
          "blocks.0.attn.v.weight [4,8] split 0 by 2, normal 0.02",
          "blocks.0.attn.o.weight [8,8] split 1 by 2, normal 0.02", "blocks.0.norm2.weight [8], 1",
          "blocks.0.mlp.gate.weight [12,8] split 0 by 1, normal 0.02",
          "blocks.0.mlp.up.weight [12,8] split 0 by 1, normal 0.02",
          "blocks.0.mlp.down.weight [8,12] split 1 by 1, normal 0.02", "final_norm.weight [8], 1",
          "head.weight [11,8] split 0 by 1, normal 0.02"));
}

TEST(Tensors, HeadDimMayDifferFromWidthOverHeadsInLlama) {
  ModelShape model = LlamaOf(1, 8, 4, 2, 12, 11);
  model.head_dim = 6;
  ASSERT_TRUE(CheckModel(model).ok());
  const std::vector<std::string> texts = TensorTexts(model);
  EXPECT_EQ(texts[2], "blocks.0.attn.q.weight [24,8] split 0 by 6, normal 0.02");
  EXPECT_EQ(texts[3], "blocks.0.attn.k.weight [12,8] split 0 by 6, normal 0.02");
  EXPECT_EQ(texts[5], "blocks.0.attn.o.weight [8,24] split 1 by 6, normal 0.02");
}

TEST(Tensors, OfALlamaHaveBiasesInAttentionOnlyAndOnDemand) {
  ModelShape model = LlamaOf(1, 8, 4, 2, 12, 11);
  model.attention_bias = true;
  ASSERT_TRUE(CheckModel(model).ok());
  std::vector<std::string> biases;
  for (const std::string& text : TensorTexts(model)) {
    if (text.find(".bias") != std::string::npos) biases.push_back(text);
  }
  EXPECT_THAT(biases, ElementsAre("blocks.0.attn.q.bias [8] split 0 by 2, 0",
                                  "blocks.0.attn.k.bias [4] split 0 by 2, 0",
                                  "blocks.0.attn.v.bias [4] split 0 by 2, 0",
                                  "blocks.0.attn.o.bias [8], 0"));
}

TEST(Tensors, HaveUniqueNamesAndKnowTheirPlace) {
  ModelShape untied = Gpt2Of(3, 8, 2, 11, 6);
  untied.tied_embeddings = false;
  std::set<std::string> names;
  for (const TensorSpec& tensor : Tensors(untied)) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    const std::string prefix = absl::StrCat("blocks.", tensor.block, ".");
    const bool in_block = tensor.name.rfind("blocks.", 0) == 0;
    EXPECT_EQ(tensor.part == ModelPart::kBlock, in_block) << tensor.name;
    EXPECT_EQ(in_block, tensor.block >= 0) << tensor.name;
    if (in_block) {
      EXPECT_EQ(tensor.name.rfind(prefix, 0), 0U) << tensor.name;
    }
    const bool in_embedding = tensor.name.rfind("embed.", 0) == 0;
    EXPECT_EQ(tensor.part == ModelPart::kEmbedding, in_embedding) << tensor.name;
  }
  EXPECT_TRUE(names.contains("head.weight"));
}

// Published counts: model cards of GPT-2 and Llama 3 on Hugging Face; GPT-3's 175B is the formula
// of its shape (Brown et al., arXiv:2005.14165, table 2.1) with 50257 and with 51200 tokens.
TEST(ParameterCount, EqualsThePublishedCounts) {
  ModelShape llama_1b = LlamaOf(16, 2048, 32, 8, 8192, 128256);
  llama_1b.tied_embeddings = true;
  const struct {
    const char* name;
    ModelShape model;
    int64_t parameters;
  } cases[] = {
      {"gpt2", Gpt2Of(12, 768, 12, 50257, 1024), 124'439'808},
      {"gpt2-medium", Gpt2Of(24, 1024, 16, 50257, 1024), 354'823'168},
      {"gpt2-large", Gpt2Of(36, 1280, 20, 50257, 1024), 774'030'080},
      {"gpt2-xl", Gpt2Of(48, 1600, 25, 50257, 1024), 1'557'611'200},
      {"llama-3.2-1b", llama_1b, 1'235'814'400},
      {"llama-2-7b", LlamaOf(32, 4096, 32, 32, 11008, 32000), 6'738'415'616},
      {"llama-3-8b", LlamaOf(32, 4096, 32, 8, 14336, 128256), 8'030'261'248},
      {"llama-3-70b", LlamaOf(80, 8192, 64, 8, 28672, 128256), 70'553'706'496},
      {"llama-3-405b", LlamaOf(126, 16384, 128, 8, 53248, 128256), 405'853'388'800},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(CheckModel(c.model).ok()) << c.name;
    EXPECT_EQ(ParameterCount(c.model), c.parameters) << c.name;
  }
  const double gpt3 = static_cast<double>(ParameterCount(Gpt2Of(96, 12288, 96, 50257, 2048)));
  const double gpt3_padded =
      static_cast<double>(ParameterCount(Gpt2Of(96, 12288, 96, 51200, 2048)));
  EXPECT_EQ(std::round(gpt3 / 1e6), 174'604);
  EXPECT_EQ(std::round(gpt3_padded / 1e6), 174'616);
}

// Jiang et al., arXiv:2401.04088; the models' cards.
TEST(ParameterCount, CountsEveryExpertAndActiveOnesApart) {
  const ModelShape mixtral = WithExperts(LlamaOf(32, 4096, 32, 8, 14336, 32000), 8, 2);
  EXPECT_TRUE(CheckModel(mixtral).ok());
  EXPECT_EQ(ParameterCount(mixtral), 46'702'792'704);
  EXPECT_EQ(ActiveParameterCount(mixtral), 12'879'925'248);
  const ModelShape large = WithExperts(LlamaOf(56, 6144, 48, 8, 16384, 32768), 8, 2);
  EXPECT_EQ(std::round(static_cast<double>(ParameterCount(large)) / 1e6), 140'630);
  EXPECT_EQ(std::round(static_cast<double>(ActiveParameterCount(large)) / 1e6), 39'161);
  const ModelShape dense = LlamaOf(2, 64, 8, 2, 176, 300);
  EXPECT_EQ(ActiveParameterCount(dense), ParameterCount(dense));
}

// Tables of the papers: arXiv:2405.04434, 2412.19437, 2505.09388, 2402.16819, 2406.11704. To the
// last digit they are sums over the tensors of the published files (2412.19437's without the bias
// of its router, which no gradient trains, and without the extra block of its other objective).
TEST(ParameterCount, OfLatentSharedAndUngatedModelsIsThePublishedOne) {
  const auto sparse = [](ModelShape model, int64_t experts, int64_t per_token, int64_t ffn,
                         int64_t shared, int64_t dense) {
    model = WithExperts(model, experts, per_token);
    model.expert_ffn_size = ffn;
    model.shared_ffn_size = shared;
    model.num_dense_blocks = dense;
    return model;
  };
  const auto latent = [](ModelShape model, int64_t query_rank) {
    model.latent = {.query_rank = query_rank,
                    .kv_rank = 512,
                    .nope_dim = 128,
                    .rope_dim = 64,
                    .value_dim = 128};
    model.head_dim = 192;
    return model;
  };
  const auto qwen3 = [](ModelShape model) {
    model.head_dim = 128;
    model.qk_norms = true;
    return model;
  };
  ModelShape nemotron = LlamaOf(96, 18432, 96, 8, 73728, 256000);
  SetArchitecture(Architecture::kNemotron, nemotron);
  const struct {
    const char* name;
    ModelShape model;
    int64_t parameters, active;
  } cases[] = {
      {"DeepSeek-V2, 236B and 21B",
       sparse(latent(LlamaOf(60, 5120, 128, 128, 12288, 102400), 1536), 160, 6, 1536, 3072, 1),
       235'741'434'880, 21'375'800'320},
      {"DeepSeek-V2-Lite, 16B",
       sparse(latent(LlamaOf(27, 2048, 16, 16, 10944, 102400), 0), 64, 6, 1408, 2816, 1),
       15'706'484'224, 2'661'150'208},
      {"DeepSeek-V3, 671B and 37B",
       sparse(latent(LlamaOf(61, 7168, 128, 128, 18432, 129280), 1536), 256, 8, 2048, 2048, 3),
       671'026'404'352, 37'552'282'624},
      {"Qwen3-235B-A22B",
       sparse(qwen3(LlamaOf(94, 4096, 64, 4, 12288, 151936)), 128, 8, 1536, 0, 0), 235'093'634'560,
       22'190'763'520},
      {"Qwen3-30B-A3B", sparse(qwen3(LlamaOf(48, 2048, 32, 4, 6144, 151936)), 128, 8, 768, 0, 0),
       30'532'122'624, 3'353'032'704},
      {"Qwen3-8B", qwen3(LlamaOf(36, 4096, 32, 8, 12288, 151936)), 8'190'735'360, 8'190'735'360},
      {"Nemotron-4 340B", nemotron, 341'029'195'776, 341'029'195'776},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(CheckModel(c.model).ok()) << c.name << CheckModel(c.model);
    EXPECT_EQ(ParameterCount(c.model), c.parameters) << c.name;
    EXPECT_EQ(ActiveParameterCount(c.model), c.active) << c.name;
  }
}

TEST(ParameterCount, IsTheSumOverTheInventory) {
  const ModelShape experts = WithExperts(LlamaOf(3, 64, 8, 2, 176, 300), 4, 2);
  for (const ModelShape& model : {Gpt2Of(3, 64, 4, 300, 128), LlamaOf(3, 64, 8, 2, 176, 300),
                                  experts, SmallLatent(), SmallPlain()}) {
    int64_t sum = 0;
    for (const TensorSpec& tensor : Tensors(model)) sum += tensor.elements();
    EXPECT_EQ(ParameterCount(model), sum);
  }
}

TEST(Tensors, OfExpertsStandWhereTheFeedForwardStood) {
  const ModelShape model = WithExperts(LlamaOf(1, 8, 4, 2, 12, 11), 2, 1);
  const std::vector<std::string> all = TensorTexts(model);
  const std::vector<std::string> feed_forward(all.begin() + 7, all.end() - 2);
  EXPECT_THAT(feed_forward,
              ElementsAre("blocks.0.mlp.router.weight [2,8], normal 0.02",
                          "blocks.0.mlp.experts.0.gate.weight [12,8] split 0 by 1, normal 0.02",
                          "blocks.0.mlp.experts.0.up.weight [12,8] split 0 by 1, normal 0.02",
                          "blocks.0.mlp.experts.0.down.weight [8,12] split 1 by 1, normal 0.02",
                          "blocks.0.mlp.experts.1.gate.weight [12,8] split 0 by 1, normal 0.02",
                          "blocks.0.mlp.experts.1.up.weight [12,8] split 0 by 1, normal 0.02",
                          "blocks.0.mlp.experts.1.down.weight [8,12] split 1 by 1, normal 0.02"));
}

TEST(Tensors, OfLatentAttentionAndASharedExpertAreThese) {
  const std::vector<std::string> all = TensorTexts(SmallLatent());
  std::vector<std::string> block;
  for (const std::string& text : all) {
    const bool expert = absl::StrContains(text, ".experts.");
    if (absl::StrContains(text, "blocks.1.") && !expert) block.push_back(text);
  }
  EXPECT_THAT(
      block,
      ElementsAre("blocks.1.norm1.weight [64], 1",
                  "blocks.1.attn.q_down.weight [24,64], normal 0.02",
                  "blocks.1.attn.q_norm.weight [24], 1",
                  "blocks.1.attn.q_up.weight [96,24] split 0 by 12, normal 0.02",
                  "blocks.1.attn.kv_down.weight [20,64], normal 0.02",
                  "blocks.1.attn.kv_norm.weight [16], 1",
                  "blocks.1.attn.kv_up.weight [112,16] split 0 by 14, normal 0.02",
                  "blocks.1.attn.o.weight [64,48] split 1 by 6, normal 0.02",
                  "blocks.1.norm2.weight [64], 1", "blocks.1.mlp.router.weight [4,64], normal 0.02",
                  "blocks.1.mlp.shared.gate.weight [96,64] split 0 by 1, normal 0.02",
                  "blocks.1.mlp.shared.up.weight [96,64] split 0 by 1, normal 0.02",
                  "blocks.1.mlp.shared.down.weight [64,96] split 1 by 1, normal 0.02",
                  "blocks.1.mlp.shared_gate.weight [1,64], normal 0.02"));
  // The first block is dense.
  for (const std::string& text : all) {
    EXPECT_FALSE(absl::StrContains(text, "blocks.0.mlp.router")) << text;
  }
  EXPECT_THAT(all, testing::Contains("blocks.0.mlp.up.weight [176,64] split 0 by 1, normal 0.02"));
}

}  // namespace
}  // namespace weft
