// The cuda backend. What needs a device is skipped without one.
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cuda/elementwise.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

const BackendApi* Api() {
  const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCuda);
  EXPECT_TRUE(api.ok()) << api.status();
  return api.ok() ? *api : nullptr;
}

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

TEST(CudaBackend, LoadsWithoutADeviceAndNamesItsLibraries) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  EXPECT_STREQ(api->name, "cuda");
  EXPECT_THAT(api->versions, HasSubstr("CUDA 1"));
  EXPECT_THAT(api->versions, HasSubstr("NCCL 2."));
}

TEST(CudaBackend, RefusesToTrainByName) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  const DeviceOptions device_options;
  const CommOptions comm_options;
  Device* device = nullptr;
  Comm* comm = nullptr;
  for (const BackendStatus& status :
       {api->open_device(&device_options, &device), api->open_comm(&comm_options, &comm)}) {
    EXPECT_EQ(status.code, static_cast<int>(absl::StatusCode::kUnimplemented));
    EXPECT_STREQ(status.text, "the cuda backend cannot train yet; use cluster.device.backend cpu");
  }
  EXPECT_EQ(device, nullptr);
  EXPECT_EQ(comm, nullptr);
}

TEST(CudaBackend, RefusesADeviceThatIsNotThere) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  DeviceDescription description;
  EXPECT_FALSE(api->describe_device(DeviceCount(), &description).ok());
}

TEST(CudaBackend, DescribesEveryDevice) {
  if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device here";
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  int count = 0;
  ASSERT_TRUE(api->device_count(&count).ok());
  ASSERT_EQ(count, DeviceCount());
  for (int i = 0; i < count; ++i) {
    DeviceDescription description;
    ASSERT_TRUE(api->describe_device(i, &description).ok());
    EXPECT_THAT(description.name, HasSubstr("(sm_"));
    EXPECT_GT(description.memory_bytes, int64_t{1} << 30);
  }
}

// Integers small enough to be exact in float: the device must agree to the bit.
TEST(CudaElementwise, AgreesWithPlainLoops) {
  if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device here";
  constexpr int64_t kRows = 20011;  // more elements than one round of blocks has threads
  constexpr int64_t kCols = 67;
  constexpr int64_t kCount = kRows * kCols;
  std::vector<float> x(kCount);
  std::vector<float> expected(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(i % 1000);
    expected[static_cast<size_t>(i)] =
        (static_cast<float>(i % 1000) + static_cast<float>(i % kCols % 1000)) * 2 * 0.5F;
  }
  const size_t bytes = x.size() * sizeof(float);
  float* device_x = nullptr;
  float* device_y = nullptr;
  ASSERT_EQ(cudaMalloc(&device_x, bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device_y, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device_x, x.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device_y, x.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  // The first kCols values of x are 0, 1, 2, ...: they serve as the bias.
  EXPECT_EQ(QueueAddBias(device_x, device_y, kRows, kCols, nullptr), cudaSuccess);
  EXPECT_EQ(QueueScale(0.5F, device_y, kCount, nullptr), cudaSuccess);
  EXPECT_EQ(QueueAdd(device_y, device_y, kCount, nullptr), cudaSuccess);
  EXPECT_EQ(QueueAdd(device_x, device_y, 0, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(x.data(), device_y, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(device_x);
  cudaFree(device_y);
  EXPECT_EQ(x, expected);
}

}  // namespace
}  // namespace weft
