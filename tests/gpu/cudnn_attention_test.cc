// Attention by cuDNN, forward and backward, in all shapes that it is used for.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/cudnn_attention_fixture.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Case {
  std::string name;
  AttentionShape shape;
};

std::vector<Case> Cases() {
  return {
      {"whole tiles", {.batch = 1, .seq_len = 128, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"one tile", {.batch = 2, .seq_len = 64, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"ragged tiles", {.batch = 2, .seq_len = 90, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"shared keys", {.batch = 2, .seq_len = 72, .heads = 6, .head_dim = 64, .kv_heads = 2}},
      {"wide heads", {.batch = 1, .seq_len = 72, .heads = 2, .head_dim = 128, .kv_heads = 2}},
      {"wide, shared", {.batch = 2, .seq_len = 48, .heads = 4, .head_dim = 128, .kv_heads = 1}},
  };
}

INSTANTIATE_TEST_SUITE_P(Backends, CudnnAttention, ::testing::Values("cudnn"),
                         [](const auto& suite) { return suite.param; });

TEST_P(CudnnAttention, AgreesWithSinglePrecision) {
  for (const Case& c : Cases()) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(c.name + (dtype == DType::kBf16 ? ", bf16" : ", fp16"));
      const std::string way = device().PrepareAttention(c.shape, dtype, false, Scratch(c.shape));
      if (way.find("cuDNN does not load") != std::string::npos) GTEST_SKIP() << way;
      if (way.find("no multiple of 128") != std::string::npos) continue;  // an older cuDNN
      ASSERT_THAT(way, StartsWith("cuDNN 9."));
      ASSERT_THAT(way, Not(HasSubstr("own")));
      for (const Error& error : ErrorsOf(c.shape, dtype)) {
        EXPECT_LT(error.found, error.bound) << error.of;
      }
    }
  }
}

}  // namespace
}  // namespace weft
