// Attention by cuDNN, forward and backward, in all shapes that it is used for.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/cudnn_attention_fixture.h"
#include "tests/gpu/rank_shape.h"

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

std::vector<Case> CasesOfRuns() {
  const AttentionShape shared = {
      .batch = 2, .seq_len = 512, .heads = 2, .head_dim = 64, .kv_heads = 1};
  AttentionShape columns = {.batch = 1, .seq_len = 512, .heads = 2, .head_dim = 64, .kv_heads = 2};
  columns.query_row_stride = 6 * 64;
  return {
      {"the outer of four", OnRank(shared, 2, 0)},
      {"the inner of four", OnRank(shared, 2, 1)},
      {"queries in columns", OnRank(columns, 2, 1)},
      {"two of eight",
       OnRank({.batch = 1, .seq_len = 1024, .heads = 1, .head_dim = 64, .kv_heads = 1}, 4, 2)},
      {"wide",
       OnRank({.batch = 1, .seq_len = 512, .heads = 2, .head_dim = 128, .kv_heads = 1}, 2, 0)},
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

INSTANTIATE_TEST_SUITE_P(Backends, CudnnAttentionOps, ::testing::Values("cudnn"),
                         [](const auto& suite) { return suite.param; });

TEST_P(CudnnAttentionOps, AgreesWithSinglePrecision) {
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

TEST_P(CudnnAttentionOps, AgreesWithSinglePrecisionOverDocuments) {
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

TEST_P(CudnnAttentionOps, AgreesWithSinglePrecisionOverRuns) {
  for (const Case& c : CasesOfRuns()) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(c.name + (dtype == DType::kBf16 ? ", bf16" : ", fp16"));
      const std::string way = device().PrepareAttention(c.shape, dtype, false, Scratch(c.shape));
      if (way.find("cuDNN does not load") != std::string::npos) GTEST_SKIP() << way;
      ASSERT_THAT(way, StartsWith("cuDNN 9."));
      ASSERT_THAT(way, Not(HasSubstr("own")));
      for (const Error& error : ErrorsOf(c.shape, dtype)) {
        EXPECT_LT(error.found, error.bound) << error.of;
      }
    }
  }
}

// Ranks compute their runs, and one device whole sequences in single precision: outputs and
// gradients of queries are compared row by row, gradients of keys as their sum over the ranks.
TEST_P(CudnnAttentionOps, OverTheRunsOfAllRanksAddsUpToWholeSequences) {
  constexpr int64_t kRanks = 2;
  const AttentionShape whole = {
      .batch = 2, .seq_len = 512, .heads = 2, .head_dim = 64, .kv_heads = 1};
  std::vector<View> inputs;
  for (const View& input : InputsOf(whole)) inputs.push_back(As(DType::kBf16, input));
  const Results expected = Run(whole, DType::kF32, inputs, {});
  Results found = {.tensors = {}, .lse = {}};
  for (const std::vector<float>& of : expected.tensors) found.tensors.emplace_back(of.size());
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const AttentionShape shape = OnRank(whole, kRanks, rank);
    const std::string way = device().PrepareAttention(shape, DType::kBf16, false, Scratch(shape));
    if (way.find("cuDNN does not load") != std::string::npos) GTEST_SKIP() << way;
    ASSERT_THAT(way, Not(HasSubstr("own")));
    // Calls visit(first row of a run among the rank's, among all).
    const auto for_each_run = [&](const auto& visit) {
      for (int64_t i = 0; i < shape.batch * shape.pieces; ++i) {
        const int64_t sequence = i / shape.pieces;
        visit(i * shape.run_len(),
              sequence * shape.seq_len + shape.piece[i % shape.pieces] * shape.run_len());
      }
    };
    std::vector<View> mine = inputs;
    for (const size_t of : {size_t{0}, size_t{3}}) {
      mine[of] = As(DType::kBf16, Fresh(shape.batch * shape.query_len(), inputs[of].cols));
      for_each_run([&](int64_t to, int64_t from) {
        device().Copy(mine[of].RowRange(to, shape.run_len()),
                      inputs[of].RowRange(from, shape.run_len()));
      });
    }
    const Results part = Run(shape, DType::kBf16, mine, {});
    const int64_t cols = whole.heads * whole.head_dim;
    for (const size_t of : {size_t{0}, size_t{1}}) {
      for_each_run([&](int64_t from, int64_t to) {
        std::copy_n(part.tensors[of].begin() + from * cols, shape.run_len() * cols,
                    found.tensors[of].begin() + to * cols);
      });
    }
    for (const size_t of : {size_t{2}, size_t{3}}) {
      for (size_t i = 0; i < found.tensors[of].size(); ++i) {
        found.tensors[of][i] += part.tensors[of][i];
      }
    }
  }
  for (size_t of = 0; of < found.tensors.size(); ++of) {
    EXPECT_LT(RelativeError(found.tensors[of], ToDoubles(expected.tensors[of])), 2 * 0x1p-8) << of;
  }
}

}  // namespace
}  // namespace weft
