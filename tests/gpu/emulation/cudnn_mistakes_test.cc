// Whether the comparison of attention by cuDNN with weft's own kernels sees a graph that is built
// wrong: fake_cudnn.cc carries graphs out with a mistake in them.
#include <dlfcn.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/gpu/cudnn_attention_fixture.h"
#include "tests/gpu/emulation/fake_cudnn.h"
#include "worker/backend/cuda/attention_graphs.h"

namespace weft {
namespace {

struct MistakeCase {
  const char* name;
  const char* seen_in;
  WeftCudnnMistake mistake;
  AttentionTensor tensor = AttentionTensor::kQ;
};

class CudnnMistakes : public CudnnAttention {
 protected:
  static WeftFakeCudnn& Fake() {
    void* const library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
    static auto* const state = reinterpret_cast<WeftFakeCudnn* (*)()>(  // never unloaded
        dlsym(library, "WeftFakeCudnnState"));
    return *state();
  }
  ~CudnnMistakes() override { Fake().mistake = WeftCudnnMistake::kNone; }

  // The results that are off with such a mistake in the graphs. Query heads share keys.
  std::string Seen(const MistakeCase& c) {
    Fake().mistake = c.mistake;
    Fake().mistaken_tensor = static_cast<int64_t>(c.tensor);
    const AttentionShape shape = {
        .batch = 2, .seq_len = 24, .heads = 4, .head_dim = 64, .kv_heads = 2};
    std::string seen;
    for (const Error& error : ErrorsOf(shape, DType::kBf16)) {
      if (error.found < error.bound) continue;
      if (!seen.empty()) seen += " ";
      seen += error.of;
    }
    return seen;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CudnnMistakes, ::testing::Values("cudnn"),
                         [](const auto& suite) { return suite.param; });

TEST_P(CudnnMistakes, AreSeen) {
  const MistakeCase cases[] = {
      {"no mask", "o dq dk dv lse", WeftCudnnMistake::kSelectsWithoutMask},
      {"a query does not see its own key", "o dq dk dv lse", WeftCudnnMistake::kComparesStrictly},
      {"another scale", "o dq dk dv lse", WeftCudnnMistake::kDoublesValue, AttentionTensor::kScale},
      {"output sums twice", "dq dk", WeftCudnnMistake::kDoublesValue, AttentionTensor::kOne},
      {"q by positions, then heads", "o dq dk dv lse", WeftCudnnMistake::kSwapsHeadsAndPositions},
      {"k the other way round", "o dq dk dv lse", WeftCudnnMistake::kSwapsHeadsAndPositions,
       AttentionTensor::kK},
      {"v the other way round", "o dq dk", WeftCudnnMistake::kSwapsHeadsAndPositions,
       AttentionTensor::kV},
      {"dk the other way round", "dk", WeftCudnnMistake::kSwapsHeadsAndPositions,
       AttentionTensor::kDk},
      {"dv the other way round", "dv", WeftCudnnMistake::kSwapsHeadsAndPositions,
       AttentionTensor::kDv},
      {"statistics are not passed", "dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kLse},
      {"the output is not passed", "o dq dk", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kO},
      {"dk and dv of one of the heads that share", "dk dv", WeftCudnnMistake::kReducesFirst},
      {"nothing is transposed", "dq dk dv", WeftCudnnMistake::kReshapesWithoutTurning},
  };
  EXPECT_EQ(Seen({"none", "", WeftCudnnMistake::kNone}), "");
  for (const MistakeCase& c : cases) {
    EXPECT_EQ(Seen(c), c.seen_in) << c.name;
  }
}

}  // namespace
}  // namespace weft
