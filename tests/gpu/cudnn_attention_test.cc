// Attention by cuDNN, forward and backward, against the same operation in f32 by weft's own
// kernels on the same numbers, in all shapes that it is used for. Results are poisoned before the
// calls, and so is the scratch memory. The bound is norm-wise, twice the unit of the type: fused
// kernels round probabilities to 16 bits before they are multiplied.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Results {
  std::vector<std::vector<float>> tensors;  // o, dq, dk, dv
  std::vector<float> lse;
};

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

class CudnnAttention : public DeviceTest {
 protected:
  // More than any device's kernels take.
  View Scratch(const AttentionShape& shape) {
    const int64_t elements = shape.batch * shape.heads * shape.seq_len * shape.head_dim;
    return Fresh(1, 4 * elements + shape.batch * shape.heads * shape.seq_len + 4096);
  }

  Results Run(const AttentionShape& shape, DType dtype, const std::vector<View>& inputs) {
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    std::vector<View> in;
    for (const View& input : inputs) in.push_back(As(dtype, input));
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    const View scratch = Scratch(shape);
    const View out[] = {As(dtype, Fresh(rows, cols)), As(dtype, Fresh(rows, cols)),
                        As(dtype, Fresh(rows, kv_cols)), As(dtype, Fresh(rows, kv_cols))};
    device().Attention(shape, in[0], in[1], in[2], {}, out[0], lse, scratch);
    device().AttentionGradient(shape, in[0], in[1], in[2], {}, out[0], lse, in[3], out[1], out[2],
                               out[3], scratch);
    Results results;
    for (const View& view : out) results.tensors.push_back(Download(As(DType::kF32, view)));
    results.lse = Download(lse);
    return results;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CudnnAttention, ::testing::Values("cudnn"),
                         [](const auto& suite) { return suite.param; });

TEST_P(CudnnAttention, AgreesWithSinglePrecision) {
  for (const Case& c : Cases()) {
    const AttentionShape& shape = c.shape;
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    for (const auto& [dtype, unit] : {std::pair{DType::kBf16, 0x1p-8}, {DType::kF16, 0x1p-11}}) {
      SCOPED_TRACE(c.name + (dtype == DType::kBf16 ? ", bf16" : ", fp16"));
      const std::string way = device().PrepareAttention(shape, dtype, false, Scratch(shape));
      if (way.find("cuDNN does not load") != std::string::npos) GTEST_SKIP() << way;
      if (way.find("no multiple of 128") != std::string::npos) continue;  // an older cuDNN
      ASSERT_THAT(way, StartsWith("cuDNN 9."));
      ASSERT_THAT(way, Not(HasSubstr("own")));
      const View inputs[] = {Upload(rows, cols, Normal(rows * cols, 1)),
                             Upload(rows, kv_cols, Normal(rows * kv_cols, 2)),
                             Upload(rows, kv_cols, Normal(rows * kv_cols, 3)),
                             Upload(rows, cols, Normal(rows * cols, 4))};
      std::vector<View> rounded;  // both are given the same numbers
      for (const View& input : inputs) rounded.push_back(As(dtype, input));
      const Results wide = Run(shape, DType::kF32, rounded);
      const Results narrow = Run(shape, dtype, rounded);
      const char* const names[] = {"o", "dq", "dk", "dv"};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_LT(RelativeError(narrow.tensors[i], ToDoubles(wide.tensors[i])), 2 * unit)
            << names[i];
      }
      EXPECT_LT(RelativeError(narrow.lse, ToDoubles(wide.lse)), 1e-5);
    }
  }
}

}  // namespace
}  // namespace weft
