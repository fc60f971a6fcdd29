// The tests of device operations share what is here: a device, tensors on it, and comparison with
// plain double-precision references. Gradients are held against central differences of the
// reference forward, so that a wrong derivation cannot agree with itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/backend/device.h"

namespace weft {

using Doubles = std::vector<double>;

// Normal values, the same for the same seed.
std::vector<float> Normal(int64_t count, uint32_t seed, float scale = 1);
Doubles ToDoubles(const std::vector<float>& values);

double InnerProduct(const Doubles& x, const std::vector<float>& y);
// Returns GPT-2's GELU, which takes tanh.
double GeluOf(double x);

// ||actual - expected|| / ||expected||.
double RelativeError(const std::vector<float>& actual, const Doubles& expected);

// d f / d x by central differences in double.
Doubles DifferenceQuotient(const std::function<double(const Doubles&)>& f, Doubles x);

class DeviceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Device& device() { return *device_; }
  View Upload(int64_t rows, int64_t cols, const std::vector<float>& values);
  View UploadIds(const std::vector<int32_t>& ids);
  // Filled with not-a-number: what an operation must write and does not, shows.
  View Fresh(int64_t rows, int64_t cols);
  // kF64 [1, 1]: what totals and scales are.
  View UploadTotal(double value);
  double DownloadTotal(View total);
  // A copy of `x` with elements of `dtype`.
  View As(DType dtype, View x);
  // Fails the test if any operation since the last call failed. Elements of 16 bits become float.
  std::vector<float> Download(View x);

 private:
  View Allocate(int64_t rows, int64_t cols, DType dtype);

  std::unique_ptr<Device, void (*)(Device*)> device_ = {nullptr, nullptr};
  std::vector<std::pair<void*, int64_t>> allocations_;
};

}  // namespace weft
