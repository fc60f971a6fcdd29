#include "worker/model/block_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/plan/sample_models.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

std::vector<StepKind> KindsOf(const BlockOps& block) {
  std::vector<StepKind> kinds;
  for (const BlockStep& step : StepsOf(block)) kinds.push_back(step.kind);
  return kinds;
}

TEST(StepsOf, AGpt2GivesGeluToTheProductBeforeIt) {
  EXPECT_THAT(
      KindsOf(OpsOf(weft::Gpt2Of(2, 64, 4, 256, 128), 0)),
      ElementsAre(StepKind::kNorm, StepKind::kProducts, StepKind::kAttention, StepKind::kBranch,
                  StepKind::kNorm, StepKind::kProductThenGelu, StepKind::kBranch));
}

// Fused or not, what reads one input is gathered for once.
TEST(StepsOf, ProductsOfOneInputAreOneStep) {
  const BlockOps apart = OpsOf(weft::LlamaOf(2, 64, 8, 2, 176, 300), 0);
  const auto expected = ElementsAre(StepKind::kNorm, StepKind::kProducts, StepKind::kTurn,
                                    StepKind::kAttention, StepKind::kBranch, StepKind::kNorm,
                                    StepKind::kProducts, StepKind::kActivation, StepKind::kBranch);
  EXPECT_THAT(KindsOf(apart), expected);
  EXPECT_THAT(KindsOf(Fuse(Fuse(apart, "qkv"), "gate_up")), expected);
}

ModelShape OfArchitecture(Architecture architecture) {
  ModelShape model = weft::LlamaOf(2, 64, 8, 2, 176, 300);
  SetArchitecture(architecture, model);
  return model;
}

// Both branches are terms of one sum; what reads one norm is gathered for once.
TEST(StepsOf, ACohere2HasOneStepOfProductsAndOneBranch) {
  EXPECT_THAT(KindsOf(OpsOf(OfArchitecture(Architecture::kCohere2), 0)),
              ElementsAre(StepKind::kNorm, StepKind::kProducts, StepKind::kTurn,
                          StepKind::kAttention, StepKind::kActivation, StepKind::kBranch));
}

TEST(StepsOf, HaveEveryOperationOnce) {
  ModelShape qwen3 = weft::LlamaOf(2, 64, 8, 2, 176, 300);
  qwen3.qk_norms = true;
  ModelShape neox = OfArchitecture(Architecture::kGptNeox);
  neox.parallel_residual = true;
  for (const ModelShape& model :
       {weft::Gpt2Of(2, 64, 4, 256, 128), qwen3, neox, OfArchitecture(Architecture::kOlmo2)}) {
    const BlockOps block = OpsOf(model, 0);
    int next = 0;
    for (const BlockStep& step : StepsOf(block)) {
      for (const int op : step.ops) EXPECT_EQ(op, next++);
    }
    EXPECT_EQ(next, static_cast<int>(block.ops.size()));
  }
}

}  // namespace
}  // namespace weft
