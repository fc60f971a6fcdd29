// The door of the cuda backend. What needs a device is skipped without one.
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/missing_device.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const BackendApi* Api() {
  const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCuda);
  EXPECT_TRUE(api.ok()) << api.status();
  return api.ok() ? *api : nullptr;
}

int DeviceCount() {
  const BackendApi* const api = Api();
  int count = 0;
  return api != nullptr && api->device_count(&count).ok() ? count : 0;
}

std::string WhyNone() {
  const BackendApi* const api = Api();
  return api != nullptr ? MissingDevice(*api) : "no backend here";
}

TEST(CudaBackend, LoadsWithoutADeviceAndNamesItsLibraries) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  EXPECT_STREQ(api->name, "cuda");
  EXPECT_THAT(api->versions, HasSubstr("CUDA 1"));
  EXPECT_THAT(api->versions, HasSubstr(", cuBLASLt 1"));
  EXPECT_THAT(api->versions, HasSubstr("cuDNN"));
  EXPECT_THAT(api->versions, AnyOf(HasSubstr("NCCL 2."), HasSubstr("no NCCL")));
}

TEST(CudaBackend, NamesTheCauseWhereThereIsNoDevice) {
  if (WhyNone().empty()) GTEST_SKIP() << "there is a CUDA device here";
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  const DeviceOptions options;
  Device* device = nullptr;
  const BackendStatus status = api->open_device(&options, &device);
  EXPECT_EQ(status.code, static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(status.text,
              AnyOf(HasSubstr("this host has no CUDA device"),
                    HasSubstr("this host has no NVIDIA driver; install 580 or newer")));
  EXPECT_EQ(device, nullptr);
}

TEST(CudaBackend, RefusesADeviceThatIsNotThere) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  DeviceDescription description;
  EXPECT_FALSE(api->describe_device(DeviceCount(), &description).ok());
}

TEST(CudaBackend, RefusesACommunicatorWithoutADevice) {
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  const CommOptions options;
  Comm* comm = nullptr;
  EXPECT_THAT(api->open_comm(&options, &comm).text, HasSubstr("needs a device and a rendezvous"));
}

TEST(CudaBackend, DescribesEveryDevice) {
  if (const std::string why = WhyNone(); !why.empty()) GTEST_SKIP() << why;
  const BackendApi* const api = Api();
  ASSERT_NE(api, nullptr);
  int count = 0;
  const BackendStatus counted = api->device_count(&count);
  ASSERT_TRUE(counted.ok()) << counted.text;
  for (int i = 0; i < count; ++i) {
    DeviceDescription description;
    ASSERT_TRUE(api->describe_device(i, &description).ok());
    EXPECT_THAT(description.name, HasSubstr("(sm_"));
    EXPECT_GT(description.memory_bytes, int64_t{1} << 30);
    EXPECT_GT(description.compute_units, 0);
  }
}

}  // namespace
}  // namespace weft
