#include "plan/block/flops.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/tensors.h"
#include "tests/plan/sample_models.h"

namespace weft {
namespace {

TEST(ForwardFlops, AreOfTheExpertsThatATokenIsSentTo) {
  const ModelShape dense = LlamaOf(2, 64, 8, 2, 176, 300);
  ModelShape sparse = WithExperts(dense, 8, 2);
  const double expert = 2.0 * 3 * 64 * 176;
  const double router = 2.0 * 64 * 8;
  const double difference =
      BlockForwardFlopsPerToken(sparse, 0, 128) - BlockForwardFlopsPerToken(dense, 0, 128);
  EXPECT_DOUBLE_EQ(difference, expert + router);
}

TEST(ForwardFlops, OfGpt2AreThoseOfThePaperWithHalfTheAttention) {
  // PTD-P, arXiv:2104.04473, appendix: a layer takes 24 B s h^2 + 4 B s^2 h, the head 2 B s h V.
  const ModelShape model = Gpt2Of(96, 12288, 96, 51200, 2048);
  const double h = 12288;
  const double s = 2048;
  EXPECT_DOUBLE_EQ(BlockForwardFlopsPerToken(model, 0, 2048), 24 * h * h + 2 * s * h);
  EXPECT_DOUBLE_EQ(HeadForwardFlopsPerToken(model), 2 * h * 51200);
}

// Counted pair by pair.
TEST(ForwardFlops, WithinAWindowAreOfThePairsThatSeeEachOther) {
  for (const int64_t window : {1, 2, 7, 64, 127, 128, 500}) {
    double pairs = 0;
    for (int64_t query = 0; query < 128; ++query) {
      pairs += static_cast<double>(std::min(window, query + 1));
    }
    // Continuous instead of a sum: off by half a key of each token at most.
    EXPECT_NEAR(VisibleKeys(window, 128), pairs / 128, 0.5) << window;
  }
  ModelShape model = LlamaOf(2, 64, 8, 2, 176, 300);
  EXPECT_EQ(MeanVisibleKeys(model, 128), 64);
  model.window = 16;
  EXPECT_DOUBLE_EQ(MeanVisibleKeys(model, 128), 15);
  model.spans = {AttentionSpan::kFull, AttentionSpan::kSliding};
  EXPECT_DOUBLE_EQ(MeanVisibleKeys(model, 128), (64.0 + 15) / 2);
  EXPECT_DOUBLE_EQ(
      BlockForwardFlopsPerToken(model, 0, 128) - BlockForwardFlopsPerToken(model, 1, 128),
      2 * (64.0 - 15) * 2 * 64);
}

TEST(ForwardFlops, AreTwoPerMatrixWeightAndTokenPlusAttention) {
  // 2 flops per weight of the block's matrices, counted from the inventory itself.
  for (const ModelShape& model :
       {Gpt2Of(2, 64, 4, 300, 128), LlamaOf(2, 64, 8, 2, 176, 300), LlamaOf(1, 32, 4, 4, 88, 300),
        OfDenseBlocks(SmallLatent()), SmallPlain()}) {
    double weights = 0;
    for (const TensorSpec& tensor : Tensors(model)) {
      if (tensor.block == 0 && tensor.is_matrix()) {
        weights += static_cast<double>(tensor.elements());
      }
    }
    const double q_width = static_cast<double>(model.num_heads * model.head_dim);
    const double v_width = static_cast<double>(model.num_heads * model.value_dim());
    EXPECT_DOUBLE_EQ(BlockForwardFlopsPerToken(model, 0, 128),
                     2 * weights + 128 * (q_width + v_width));
  }
}

}  // namespace
}  // namespace weft
