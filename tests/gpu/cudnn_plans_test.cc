// cuDNN itself, without a device: it knows the graphs of attention as a whole, generates code for
// them, and needs as much scratch memory as the plan sets aside. For devices that are described,
// with a stub in the driver's place (stub_driver/). That the numbers are right is not shown here:
// cudnn_attention_test.cc, on the emulated device and on a real one.
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "plan/memory/cudnn_attention.h"
#include "tests/gpu/rank_shape.h"
#include "tests/gpu/stub_driver/driver.h"
#include "worker/backend/cuda/attention/attention_graphs.h"
#include "worker/backend/cuda/attention/attention_parts.h"
#include "worker/backend/cuda/attention/cudnn_library.h"

namespace weft {
namespace {

constexpr int kFirstWithDescribedDevices = 91100;

constexpr StubDevice kH200;
constexpr StubDevice kB200 = {
    .name = "NVIDIA B200", .capability = 100, .multiprocessors = 148, .shared_bytes = 232448};

constexpr StubDevice kA100 = {
    .name = "NVIDIA A100", .capability = 80, .multiprocessors = 108, .shared_bytes = 166912};

// Describes a device as NVIDIA's data sheets and CUDA's programming guide do.
std::string PropertiesOf(const StubDevice& device) {
  const auto entry = [](const char* key, int64_t value) {
    return "\"" + std::string(key) + "\": " + std::to_string(value) + ", ";
  };
  return "{" + entry("cudaDeviceId", 0) + entry("deviceVer", device.capability * 10) +
         entry("driverVer", 13000) + entry("isTccDriver", 0) +
         entry("l2CacheSize", int64_t{60} << 20) + entry("maxCtasPerSM", 32) +
         entry("maxRegistersPerSM", 65536) + entry("maxSharedMemoryPerBlock", 49152) +
         entry("maxSharedMemoryPerBlockOptin", device.shared_bytes) +
         entry("maxThreadsPerBlock", 1024) + entry("maxThreadsPerSM", 2048) +
         entry("memClockRateKHz", 3201000) + entry("multiProcessorCount", device.multiprocessors) +
         entry("pciDeviceId", 0) + entry("regsPerBlock", 65536) +
         entry("reservedSharedMemoryPerBlock", 1024) + entry("smClockRateKHz", 1980000) +
         entry("supportCoopLaunch", 1) + entry("totalGlobalMem", int64_t{140} << 30) +
         entry("warpSize", 32) + "\"maxBlockSize\": [1024, 1024, 64], " +
         "\"maxGridSize\": [2147483647, 65535, 65535], \"deviceName\": \"" + device.name + "\"}";
}

// Skips the test, with the reason, where it cannot be.
class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(WEFT_STUB_DRIVER).empty())
      GTEST_SKIP() << "no stubs/libcuda.so to stand in for";
    static void* const driver = dlopen(WEFT_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(driver, nullptr) << dlerror();
    describe_ = reinterpret_cast<decltype(&WeftStubDevice)>(dlsym(driver, "WeftStubDevice"));
    ASSERT_NE(describe_, nullptr);
    const BackendStatus status = LoadCudnn(&cudnn_);
    if (!status.ok()) GTEST_SKIP() << status.text;
    if (cudnn_->version < kFirstWithDescribedDevices) {
      GTEST_SKIP() << "cuDNN " << cudnn_->version << " plans only for a device that is here";
    }
  }
  void TearDown() override {
    if (properties_ != nullptr) cudnn_->destroy_descriptor(properties_);
  }

  void Describe(const StubDevice& device) {
    describe_(&device);
    const std::string text = PropertiesOf(device);
    ASSERT_EQ(cudnn_->create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties_),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnn_->set_attribute(properties_, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, std::ssize(text), text.data()),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnn_->finalize(properties_), CUDNN_STATUS_SUCCESS);
  }

  // -1: there is none.
  int64_t ScratchBytes(AttentionPass pass, const AttentionShape& shape, DType dtype,
                       int64_t room_bytes = std::numeric_limits<int64_t>::max()) {
    return ScratchBytes(pass, shape, PartsOf(shape).front(), dtype, room_bytes);
  }
  int64_t ScratchBytes(AttentionPass pass, const AttentionShape& shape, const AttentionPart& part,
                       DType dtype, int64_t room_bytes = std::numeric_limits<int64_t>::max()) {
    std::unique_ptr<CudnnGraph> graph;
    const BackendStatus status = PlanAttention(*cudnn_, {.device_properties = properties_}, pass,
                                               shape, part, dtype, room_bytes, &graph);
    EXPECT_TRUE(status.ok()) << status.text;
    return status.ok() ? CudnnScratchBytes(pass, shape, part, graph->workspace_bytes()) : -1;
  }

  // Without the slack.
  static int64_t PlannedBytes(const AttentionShape& shape) {
    return 4 * CudnnAttentionScratchFloats({.batch = shape.batch,
                                            .seq_len = shape.seq_len,
                                            .heads = shape.heads,
                                            .kv_heads = shape.kv_heads,
                                            .head_dim = shape.head_dim,
                                            .documents = shape.documents,
                                            .cp = shape.runs == 1 ? 1 : shape.runs / 2}) -
           kCudnnAttentionSlackBytes;
  }

  // No rank's kernels need more, and those of one need all of it.
  void ExpectThePlannedScratch(const AttentionShape& whole, int64_t seq_len, int64_t cp) {
    int64_t most = 0;
    for (const int64_t rank : {int64_t{0}, cp - 1}) {
      const AttentionShape shape = OnRank(OfLength(whole, seq_len), cp, rank);
      for (const AttentionPart& part : PartsOf(shape)) {
        SCOPED_TRACE(std::to_string(part.queries) + " of " + std::to_string(part.keys));
        most = std::max(most, ScratchBytes(AttentionPass::kBackward, shape, part, DType::kBf16));
        const int64_t forward = ScratchBytes(AttentionPass::kForward, shape, part, DType::kBf16);
        EXPECT_GE(forward, 0);
        EXPECT_LE(forward, 512);
      }
    }
    EXPECT_EQ(most, PlannedBytes(OnRank(OfLength(whole, seq_len), cp, 0))) << seq_len;
  }

  const CudnnLibrary* cudnn_ = nullptr;
  cudnnBackendDescriptor_t properties_ = nullptr;

 private:
  decltype(&WeftStubDevice) describe_ = nullptr;
};

constexpr AttentionShape kGpt2 = {
    .batch = 16, .seq_len = 1024, .heads = 12, .head_dim = 64, .kv_heads = 12};
constexpr AttentionShape kLlama = {
    .batch = 4, .seq_len = 4096, .heads = 32, .head_dim = 128, .kv_heads = 8};
constexpr AttentionShape kLlama8b = {.batch = 1, .heads = 32, .head_dim = 128, .kv_heads = 8};
constexpr AttentionShape kOdd = {
    .batch = 3, .seq_len = 77, .heads = 6, .head_dim = 64, .kv_heads = 2};

AttentionShape With(int64_t documents, AttentionShape shape) {
  shape.documents = documents;
  return shape;
}

TEST_F(CudnnPlans, ForAnH200NeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  for (const AttentionShape& shape : {kGpt2, kLlama, kOdd}) {
    SCOPED_TRACE(shape.seq_len);
    const int64_t backward = ScratchBytes(AttentionPass::kBackward, shape, DType::kBf16);
    EXPECT_EQ(backward, PlannedBytes(shape));
    const int64_t forward = ScratchBytes(AttentionPass::kForward, shape, DType::kBf16);
    EXPECT_GE(forward, 0);
    EXPECT_LE(forward, 512);
    RecordProperty("scratch_of_" + std::to_string(shape.seq_len), std::to_string(backward));
  }
  EXPECT_EQ(ScratchBytes(AttentionPass::kBackward, kGpt2, DType::kF16), PlannedBytes(kGpt2));
  EXPECT_EQ(ScratchBytes(AttentionPass::kBackward, kGpt2, DType::kBf16, 0), PlannedBytes(kGpt2))
      << "no other plan makes do with less";
  EXPECT_GE(ScratchBytes(AttentionPass::kForward, kGpt2, DType::kF16), 0);
}

// q, k and v as columns of one matrix, and so their gradients. Where sequences are no multiple of
// 128, gradients of heads that share keys then take more than the plan sets aside, but for its
// slack.
TEST_F(CudnnPlans, AreThereForRowsThatAreFurtherApart) {
  const struct {
    StubDevice device;
    AttentionShape shape;
    int64_t slack = 0;
  } cases[] = {{kH200, kGpt2},
               {kH200, kLlama},
               {kB200, kLlama},
               {kH200, kOdd, kCudnnAttentionSlackBytes},
               {kB200, kOdd, kCudnnAttentionSlackBytes}};
  for (const auto& c : cases) {
    Describe(c.device);
    AttentionShape shape = c.shape;
    SCOPED_TRACE(shape.seq_len);
    shape.query_row_stride = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    shape.key_row_stride = shape.query_row_stride;
    EXPECT_GE(ScratchBytes(AttentionPass::kForward, shape, DType::kBf16), 0);
    const int64_t backward = ScratchBytes(AttentionPass::kBackward, shape, DType::kBf16);
    EXPECT_GE(backward, 0);
    EXPECT_LE(backward, PlannedBytes(shape) + c.slack);
    cudnn_->destroy_descriptor(properties_);
    properties_ = nullptr;
  }
}

// The shapes have as many documents as DocumentBounds has for such sequences, one for each
// sequence, and neither.
TEST_F(CudnnPlans, OverDocumentsForAnH200NeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  const struct {
    AttentionShape shape;
    DType dtype;
  } cases[] = {{With(64, kGpt2), DType::kF16},
               {With(64, kLlama), DType::kBf16},
               {With(4, kLlama), DType::kBf16},
               {With(12, kOdd), DType::kBf16}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.shape.seq_len);
    const int64_t backward = ScratchBytes(AttentionPass::kBackward, c.shape, c.dtype);
    if (cudnn_->version / 100 == 919) {
      EXPECT_EQ(backward, PlannedBytes(c.shape));
    } else {  // 9.26 takes four bytes a document more
      EXPECT_GT(backward, 0);
      EXPECT_LE(backward, PlannedBytes(c.shape) + kCudnnAttentionSlackBytes);
    }
    const int64_t forward = ScratchBytes(AttentionPass::kForward, c.shape, c.dtype);
    EXPECT_GE(forward, 0);
    EXPECT_LT(forward, 1 << 16);
  }
}

TEST_F(CudnnPlans, ForAB200NeedNoMore) {
  Describe(kB200);
  for (const AttentionShape& shape : {kGpt2, kLlama, With(64, kLlama)}) {
    SCOPED_TRACE(shape.seq_len);
    const int64_t slack = cudnn_->version / 100 == 919 ? 0 : kCudnnAttentionSlackBytes;
    const int64_t backward = ScratchBytes(AttentionPass::kBackward, shape, DType::kBf16);
    EXPECT_GE(backward, 0);
    EXPECT_LE(backward, PlannedBytes(shape) + slack);
    EXPECT_GE(ScratchBytes(AttentionPass::kForward, shape, DType::kBf16), 0);
  }
}

// Heads of a Llama-8B-like model, each length of its sequences, and of the ranks those that hold
// the first and the last piece, or the two in the middle.
TEST_F(CudnnPlans, ForRunsOfTwoRanksNeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  ExpectThePlannedScratch(kLlama8b, 8192, 2);
}

TEST_F(CudnnPlans, ForLongRunsOfTwoRanksNeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  for (const int64_t seq_len : {16384, 32768, 65536, 131072}) {
    ExpectThePlannedScratch(kLlama8b, seq_len, 2);
  }
}

TEST_F(CudnnPlans, ForRunsOfFourRanksNeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  for (const int64_t seq_len : {8192, 32768, 131072}) ExpectThePlannedScratch(kLlama8b, seq_len, 4);
}

TEST_F(CudnnPlans, ForRunsOfEightRanksNeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  for (const int64_t seq_len : {8192, 32768, 131072}) ExpectThePlannedScratch(kLlama8b, seq_len, 8);
}

// Where no heads share keys, the kernel that adds takes most.
TEST_F(CudnnPlans, ForRunsOfHeadsThatShareNoKeysNeedTheScratchThatThePlanSetsAside) {
  Describe(kH200);
  ExpectThePlannedScratch({.batch = 2, .heads = 12, .head_dim = 64, .kv_heads = 12}, 1024, 2);
  ExpectThePlannedScratch({.batch = 2, .heads = 12, .head_dim = 64, .kv_heads = 12}, 1024, 4);
}

TEST_F(CudnnPlans, ForRunsOnAB200NeedNoMore) {
  Describe(kB200);
  for (const auto& [seq_len, cp] : {std::pair<int64_t, int64_t>{8192, 2}, {131072, 8}}) {
    const AttentionShape shape = OnRank(OfLength(kLlama8b, seq_len), cp, 0);
    for (const AttentionPart& part : PartsOf(shape)) {
      SCOPED_TRACE(part.keys);
      const int64_t bytes = ScratchBytes(AttentionPass::kBackward, shape, part, DType::kBf16);
      EXPECT_GE(bytes, 0);
      EXPECT_LE(bytes, PlannedBytes(shape));
      EXPECT_GE(ScratchBytes(AttentionPass::kForward, shape, part, DType::kBf16), 0);
    }
  }
}

// Kernels for 8.0 keep dq once more: the plan has no room for that, and both passes then go to
// weft's own.
TEST_F(CudnnPlans, ForRunsOnAnA100NeedMore) {
  Describe(kA100);
  const AttentionShape shape = OnRank(OfLength(kLlama8b, 8192), 2, 0);
  const AttentionPart first = PartsOf(shape).front();
  EXPECT_GE(ScratchBytes(AttentionPass::kForward, shape, first, DType::kBf16), 0);
  EXPECT_GT(ScratchBytes(AttentionPass::kBackward, shape, first, DType::kBf16),
            PlannedBytes(shape) + kCudnnAttentionSlackBytes);
}

}  // namespace
}  // namespace weft
