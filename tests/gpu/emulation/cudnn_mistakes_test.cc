// Whether the comparison of attention by cuDNN with weft's own kernels sees a graph that is built
// wrong: fake_cudnn.cc carries graphs out with a mistake in them.
// Mistakes may read beyond their tensors, so not under the address sanitizer (CMakePresets.json).
#include <cudnn.h>
#include <dlfcn.h>

#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/cudnn_attention_fixture.h"
#include "tests/gpu/emulation/fake_cudnn.h"
#include "worker/backend/cuda/attention/attention_graphs.h"
#include "worker/backend/cuda/attention/cudnn_library.h"

namespace weft {
namespace {

struct MistakeCase {
  const char* name;
  const char* seen_in;
  WeftCudnnMistake mistake;
  AttentionTensor tensor = AttentionTensor::kQ;
};

class CudnnMistakes : public CudnnAttentionOps {
 protected:
  static WeftFakeCudnn& Fake() {
    void* const library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
    static auto* const state = reinterpret_cast<WeftFakeCudnn* (*)()>(  // never unloaded
        dlsym(library, "WeftFakeCudnnState"));
    return *state();
  }
  ~CudnnMistakes() override { Fake().mistake = WeftCudnnMistake::kNone; }

  // The results that are off with such a mistake in the graphs. Query heads share keys.
  std::string Seen(const MistakeCase& c, const std::vector<int64_t>& documents = {}) {
    const AttentionShape shape = {.batch = 2,
                                  .seq_len = 24,
                                  .heads = 4,
                                  .head_dim = 64,
                                  .kv_heads = 2,
                                  .documents = documents.empty() ? 0 : 6};
    return Seen(c, shape, documents);
  }
  std::string Seen(const MistakeCase& c, const AttentionShape& shape,
                   const std::vector<int64_t>& documents) {
    Fake().mistake = c.mistake;
    Fake().mistaken_tensor = static_cast<int64_t>(c.tensor);
    std::string seen;
    for (const Error& error : ErrorsOf(shape, DType::kBf16, StartsOf(documents, shape.seq_len))) {
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

// Zeros in the place of a table: no document has tokens, or all start at the first.
TEST_P(CudnnMistakes, AreSeenOverDocuments) {
  const std::vector<int64_t> documents = {7, 17, 23, 1};
  const MistakeCase cases[] = {
      {"no causal mask", "o dq dk dv lse", WeftCudnnMistake::kSelectsWithoutMask},
      {"another scale", "o dq dk dv lse", WeftCudnnMistake::kDoublesValue, AttentionTensor::kScale},
      {"statistics are not passed", "dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kLse},
      {"no lengths of queries", "o dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kQueryLengths},
      {"no lengths of keys", "o dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kKeyLengths},
      {"queries start at the first", "o dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kQueryOffsets},
      {"keys start at the first", "o dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kKeyOffsets},
      {"statistics start at the first", "o dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kStatisticOffsets},
      {"dk and dv of one of the heads that share", "dk dv", WeftCudnnMistake::kReducesFirst},
  };
  EXPECT_EQ(Seen({"none", "", WeftCudnnMistake::kNone}, documents), "");
  EXPECT_EQ(Fake().impossible_runs, 0);
  for (const MistakeCase& c : cases) {
    EXPECT_EQ(Seen(c, documents), c.seen_in) << c.name;
  }
}

TEST_P(CudnnMistakes, AreSeenOverRuns) {
  AttentionShape shape = {.batch = 1, .seq_len = 512, .heads = 4, .head_dim = 64, .kv_heads = 2};
  shape.runs = 4;
  shape.pieces = 2;
  shape.piece[0] = 1;
  shape.piece[1] = 2;
  const MistakeCase cases[] = {
      {"none", "", WeftCudnnMistake::kNone},
      {"a query does not see its own key", "o dq dk dv lse", WeftCudnnMistake::kComparesStrictly},
      {"queries are other keys' neighbours", "o dq dk dv lse", WeftCudnnMistake::kDoublesValue,
       AttentionTensor::kQueryCount},
      {"statistics are not passed", "dq dk dv lse", WeftCudnnMistake::kPassesAnother,
       AttentionTensor::kLse},
      {"dk is left as it was", "dk", WeftCudnnMistake::kPassesAnother, AttentionTensor::kDk},
      {"dv is left as it was", "dv", WeftCudnnMistake::kPassesAnother, AttentionTensor::kDv},
      {"dk and dv of one of the heads that share", "dk dv", WeftCudnnMistake::kReducesFirst},
      {"nothing is transposed", "dq dk dv", WeftCudnnMistake::kReshapesWithoutTurning},
  };
  for (const MistakeCase& c : cases) {
    EXPECT_EQ(Seen(c, shape, {}), c.seen_in) << c.name;
  }
}

// The stand-in for cuDNN, which would else take what cuDNN itself refuses.
TEST(FakeCudnn, RefusesADescriptorThatLacksAnAttribute) {
  const CudnnLibrary* library = nullptr;
  ASSERT_TRUE(LoadCudnn(&library).ok());
  const int64_t four[] = {1, 1, 1, 1};
  const int64_t one = 16;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const struct {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void* values;
  } attributes[] = {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
                    {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, four},
                    {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, four},
                    {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one},
                    {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &one}};
  const int count = static_cast<int>(std::size(attributes));
  for (int lacking = 0; lacking <= count; ++lacking) {
    cudnnBackendDescriptor_t tensor = nullptr;
    library->create_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor);
    for (int i = 0; i < count; ++i) {
      const auto& each = attributes[i];
      if (i == lacking) continue;
      library->set_attribute(tensor, each.name, each.type, each.count, each.values);
    }
    EXPECT_EQ(library->finalize(tensor) == CUDNN_STATUS_SUCCESS, lacking == count) << lacking;
    library->destroy_descriptor(tensor);
  }
}

}  // namespace
}  // namespace weft
