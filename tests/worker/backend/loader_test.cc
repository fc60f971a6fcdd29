// Finding and opening a backend; what happens when it is not there or not right.
#include "worker/backend/loader.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::StatusOr<const BackendApi*>& api) {
  return std::string(api.status().message());
}

TEST(LoadBackend, FindsTheCpuBackendBesideTheExecutable) {
  const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCpu);
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_STREQ((*api)->name, "cpu");
  EXPECT_THAT((*api)->versions, HasSubstr("OpenBLAS 0."));
  EXPECT_THAT((*api)->versions, HasSubstr("Open MPI 4."));
  int count = 0;
  ASSERT_TRUE((*api)->device_count(&count).ok());
  EXPECT_GE(count, 1);
  DeviceDescription description;
  ASSERT_TRUE((*api)->describe_device(0, &description).ok());
  EXPECT_STRNE(description.name, "");
  EXPECT_GT(description.memory_bytes, 0);
  EXPECT_EQ(description.compute_units, 0);
  const absl::Status none = ToStatus((*api)->describe_device(count, &description));
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
}

TEST(LoadBackend, OpensADeviceThatComputesAcrossTheBoundary) {
  const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCpu);
  ASSERT_TRUE(api.ok()) << api.status();
  Device* device = nullptr;
  const DeviceOptions options;
  ASSERT_TRUE((*api)->open_device(&options, &device).ok());
  float a[] = {1, 2, 3, 4};
  float c[] = {0, 0, 0, 0};
  device->MatMul({a, 2, 2}, Transpose::kNo, {a, 2, 2}, Transpose::kYes, 0, {c, 2, 2});
  EXPECT_TRUE(ToStatus(device->Synchronize()).ok());
  EXPECT_THAT(c, ::testing::ElementsAre(5, 11, 11, 25));
  (*api)->close_device(device);
}

TEST(LoadBackend, SaysWhichFileIsMissing) {
  const auto api = LoadBackend(BackendKind::kCuda, "/nonexistent");
  EXPECT_EQ(api.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(api), HasSubstr("/nonexistent/libweft_cuda.so does not exist"));
}

TEST(LoadBackend, SaysWhichLibraryItNeedsIsMissing) {
  const auto api = LoadBackend(BackendKind::kCpu, WEFT_FAKE_BACKENDS "/missing_library");
  EXPECT_EQ(api.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(api), HasSubstr("libweft_absent.so"));
}

TEST(LoadBackend, RefusesAnotherAbi) {
  const auto api = LoadBackend(BackendKind::kCpu, WEFT_FAKE_BACKENDS "/wrong_abi");
  EXPECT_EQ(api.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(api), HasSubstr("is of another version; ABI " +
                                      std::to_string(kBackendAbiVersion) + " is needed"));
}

TEST(LoadBackend, RefusesALibraryThatIsNoBackend) {
  const auto api = LoadBackend(BackendKind::kCpu, WEFT_FAKE_BACKENDS "/no_backend");
  EXPECT_EQ(api.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(api), HasSubstr("is not a weft backend"));
}

TEST(LoadBackend, RefusesAFileThatIsNoLibrary) {
  const std::filesystem::path folder =
      ::testing::TempDir() + "/no_library_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libweft_cpu.so") << "not a library";
  const auto api = LoadBackend(BackendKind::kCpu, folder.string());
  std::filesystem::remove_all(folder);
  EXPECT_EQ(api.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(api), HasSubstr("does not load"));
}

TEST(ToStatus, KeepsCodeAndText) {
  EXPECT_TRUE(ToStatus({}).ok());
  const absl::Status aborted = ToStatus({.code = 10, .text = "lease lost"});
  EXPECT_EQ(aborted, absl::AbortedError("lease lost"));
}

}  // namespace
}  // namespace weft
