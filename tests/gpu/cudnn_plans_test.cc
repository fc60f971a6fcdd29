// cuDNN itself, without a device: it knows the graphs of attention as a whole, generates code for
// them, and needs as much scratch memory as the plan sets aside. For devices that are described,
// with a stub in the driver's place (stub_driver/). That the numbers are right is not shown here:
// cudnn_attention_test.cc, on the emulated device and on a real one.
#include <cudnn.h>
#include <dlfcn.h>

#include <limits>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "plan/memory/cudnn_attention.h"
#include "tests/gpu/stub_driver/driver.h"
#include "worker/backend/cuda/attention/attention_graphs.h"
#include "worker/backend/cuda/attention/cudnn_library.h"

namespace weft {
namespace {

constexpr int kFirstWithDescribedDevices = 91100;

constexpr StubDevice kH200;
constexpr StubDevice kB200 = {
    .name = "NVIDIA B200", .capability = 100, .multiprocessors = 148, .shared_bytes = 232448};

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
    std::unique_ptr<CudnnGraph> graph;
    const BackendStatus status = PlanAttention(*cudnn_, {.device_properties = properties_}, pass,
                                               shape, dtype, room_bytes, &graph);
    EXPECT_TRUE(status.ok()) << status.text;
    return status.ok() ? CudnnScratchBytes(pass, shape, graph->workspace_bytes()) : -1;
  }

  // Without the slack.
  static int64_t PlannedBytes(const AttentionShape& shape) {
    return 4 * CudnnAttentionScratchFloats({.batch = shape.batch,
                                            .seq_len = shape.seq_len,
                                            .heads = shape.heads,
                                            .kv_heads = shape.kv_heads,
                                            .head_dim = shape.head_dim,
                                            .documents = shape.documents}) -
           kCudnnAttentionSlackBytes;
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

}  // namespace
}  // namespace weft
