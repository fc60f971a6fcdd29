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
  std::vector<int64_t> documents = {};  // lengths; none: all tokens of a sequence see each other
};

// q, k and v side by side, as one product leaves them.
AttentionShape InOneMatrix(AttentionShape shape) {
  shape.query_row_stride = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  shape.key_row_stride = shape.query_row_stride;
  return shape;
}

std::vector<Case> Cases() {
  return {
      {"whole tiles", {.batch = 1, .seq_len = 128, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"one tile", {.batch = 2, .seq_len = 64, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"ragged tiles", {.batch = 2, .seq_len = 90, .heads = 2, .head_dim = 64, .kv_heads = 2}},
      {"shared keys", {.batch = 2, .seq_len = 72, .heads = 6, .head_dim = 64, .kv_heads = 2}},
      {"wide heads", {.batch = 1, .seq_len = 72, .heads = 2, .head_dim = 128, .kv_heads = 2}},
      {"wide, shared", {.batch = 2, .seq_len = 48, .heads = 4, .head_dim = 128, .kv_heads = 1}},
      {"columns",
       InOneMatrix({.batch = 2, .seq_len = 128, .heads = 2, .head_dim = 64, .kv_heads = 2})},
      {"columns, shared",
       InOneMatrix({.batch = 2, .seq_len = 128, .heads = 4, .head_dim = 64, .kv_heads = 2})},
      {"columns, wide, shared, ragged",
       InOneMatrix({.batch = 2, .seq_len = 72, .heads = 4, .head_dim = 128, .kv_heads = 1})},
  };
}

// Bounds of documents are those counts, or more: the kernel's batch then has entries without
// tokens.
std::vector<Case> CasesOfDocuments() {
  const auto shape = [](int64_t batch, int64_t seq_len, int64_t heads, int64_t head_dim,
                        int64_t kv_heads, int64_t documents) {
    return AttentionShape{.batch = batch,
                          .seq_len = seq_len,
                          .heads = heads,
                          .head_dim = head_dim,
                          .kv_heads = kv_heads,
                          .documents = documents};
  };
  return {
      {"odd lengths", shape(2, 90, 2, 64, 2, 8), {1, 37, 52, 90}},
      {"odd, shared", shape(2, 45, 6, 64, 2, 8), {7, 37, 1, 2, 43}},
      {"sequences", shape(3, 40, 4, 64, 1, 3), {40, 40, 40}},
      {"single tokens", shape(1, 24, 2, 64, 1, 16), {1, 1, 1, 9, 1, 1, 1, 1, 8}},
      {"beyond a tile", shape(1, 150, 2, 128, 2, 2), {131, 19}},
      {"wide, shared", shape(2, 48, 4, 128, 1, 16), {1, 1, 46, 3, 5, 40}},
      {"a document of all", shape(1, 64, 2, 64, 2, 4), {64}},
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

TEST_P(CudnnAttention, AgreesWithSinglePrecisionOverDocuments) {
  for (const Case& c : CasesOfDocuments()) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(c.name + (dtype == DType::kBf16 ? ", bf16" : ", fp16"));
      const std::string way = device().PrepareAttention(c.shape, dtype, true, Scratch(c.shape));
      for (const char* const lacks :
           {"cuDNN does not load", "before 9.18.1", "compute capability"}) {
        if (way.find(lacks) != std::string::npos) GTEST_SKIP() << way;
      }
      ASSERT_THAT(way, StartsWith("cuDNN 9."));
      ASSERT_THAT(way, Not(HasSubstr("own")));
      for (const Error& error : ErrorsOf(c.shape, dtype, StartsOf(c.documents, c.shape.seq_len))) {
        EXPECT_LT(error.found, error.bound) << error.of;
      }
    }
  }
}

}  // namespace
}  // namespace weft
