// Attention on 16-bit elements with heads of the sizes that models have: 64 and 128, for which
// devices have kernels of their own, and 80, for which they have not. Against the same operation in
// f32 on the same numbers. Such kernels may round probabilities to 16 bits before they are
// multiplied, so the bound is norm-wise: twice the unit of the type.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"

namespace weft {
namespace {

class WideAttention : public DeviceTest {
 protected:
  struct Results {
    std::vector<std::vector<float>> tensors;  // o, dq, dk, dv
    std::vector<float> lse;
  };

  Results Run(const AttentionShape& shape, const std::vector<int32_t>& first, DType dtype,
              const std::vector<View>& inputs) {
    const int64_t query_rows = shape.batch * shape.query_len();
    const int64_t key_rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    std::vector<View> in;
    for (const View& input : inputs) in.push_back(As(dtype, input));
    const View visible = first.empty() ? View{} : UploadIds(first);
    const View lse = Fresh(shape.batch * shape.heads, shape.query_len());
    const View scratch = Fresh(1, AttentionScratchElements(shape, dtype));
    const View out[] = {As(dtype, Fresh(query_rows, cols)), As(dtype, Fresh(query_rows, cols)),
                        As(dtype, Fresh(key_rows, kv_cols)), As(dtype, Fresh(key_rows, kv_cols))};
    device().Attention(shape, in[0], in[1], in[2], visible, out[0], lse, scratch);
    device().AttentionGradient(shape, in[0], in[1], in[2], visible, out[0], lse, in[3], out[1],
                               out[2], out[3], scratch);
    Results results;
    for (const View& view : out) results.tensors.push_back(Download(As(DType::kF32, view)));
    results.lse = Download(lse);
    return results;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, WideAttention, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

struct WideCase {
  std::string name;
  AttentionShape shape;
  int64_t document = 0;  // tokens of each document; 0: no mask
};

std::vector<WideCase> WideCases() {
  return {
      {"one tile", {.batch = 1, .seq_len = 64, .heads = 1, .head_dim = 64, .kv_heads = 1}},
      {"ragged tiles, shared keys",
       {.batch = 2, .seq_len = 150, .heads = 2, .head_dim = 64, .kv_heads = 1}},
      {"wide heads", {.batch = 1, .seq_len = 140, .heads = 2, .head_dim = 128, .kv_heads = 2}},
      {"heads of no kernel's own",
       {.batch = 1, .seq_len = 70, .heads = 2, .head_dim = 80, .kv_heads = 1}},
      {"capped",
       {.batch = 2, .seq_len = 150, .heads = 2, .head_dim = 64, .kv_heads = 1, .cap = 0.9}},
      {"capped, wide heads",
       {.batch = 1, .seq_len = 140, .heads = 2, .head_dim = 128, .kv_heads = 2, .cap = 3}},
      {"documents", {.batch = 1, .seq_len = 170, .heads = 1, .head_dim = 64, .kv_heads = 1}, 37},
      {"two pieces of four runs",
       {.batch = 1,
        .seq_len = 160,
        .heads = 1,
        .head_dim = 64,
        .kv_heads = 1,
        .runs = 4,
        .pieces = 2,
        .piece = {3, 0}}},
  };
}

std::vector<int32_t> FirstVisible(const WideCase& c) {
  std::vector<int32_t> first;
  const AttentionShape& shape = c.shape;
  for (int64_t row = 0; c.document > 0 && row < shape.batch * shape.query_len(); ++row) {
    first.push_back(static_cast<int32_t>(row % shape.seq_len / c.document * c.document));
  }
  return first;
}

TEST_P(WideAttention, AgreesWithSinglePrecisionAndRepeatsItsBits) {
  for (const WideCase& c : WideCases()) {
    const AttentionShape& shape = c.shape;
    const int64_t query_rows = shape.batch * shape.query_len();
    const int64_t key_rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    for (const auto& [dtype, unit] : {std::pair{DType::kBf16, 0x1p-8}, {DType::kF16, 0x1p-11}}) {
      SCOPED_TRACE(c.name + (dtype == DType::kBf16 ? ", bf16" : ", fp16"));
      const View inputs[] = {Upload(query_rows, cols, Normal(query_rows * cols, 1)),
                             Upload(key_rows, kv_cols, Normal(key_rows * kv_cols, 2)),
                             Upload(key_rows, kv_cols, Normal(key_rows * kv_cols, 3)),
                             Upload(query_rows, cols, Normal(query_rows * cols, 4))};
      std::vector<View> rounded;  // both are given the same numbers
      for (const View& input : inputs) rounded.push_back(As(dtype, input));
      const Results wide = Run(shape, FirstVisible(c), DType::kF32, rounded);
      const Results narrow = Run(shape, FirstVisible(c), dtype, rounded);
      const char* const names[] = {"o", "dq", "dk", "dv"};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_LT(RelativeError(narrow.tensors[i], ToDoubles(wide.tensors[i])), 2 * unit)
            << names[i];
      }
      EXPECT_LT(RelativeError(narrow.lse, ToDoubles(wide.lse)), 1e-6);
      EXPECT_EQ(narrow.tensors, Run(shape, FirstVisible(c), dtype, rounded).tensors);
    }
  }
}

}  // namespace
}  // namespace weft
