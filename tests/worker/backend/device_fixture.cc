#include "tests/worker/backend/device_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/worker/backend/tested_backend.h"

namespace weft {

std::vector<float> Normal(int64_t count, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * normal(generator);
  return values;
}

Doubles ToDoubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

double InnerProduct(const Doubles& x, const std::vector<float>& y) {
  double total = 0;
  for (size_t i = 0; i < x.size(); ++i) total += x[i] * static_cast<double>(y[i]);
  return total;
}

double GeluOf(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double RelativeError(const std::vector<float>& actual, const Doubles& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / std::max(norm, 1e-300));
}

Doubles DifferenceQuotient(const std::function<double(const Doubles&)>& f, Doubles x) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    x[i] = value + kStep;
    const double above = f(x);
    x[i] = value - kStep;
    const double below = f(x);
    x[i] = value;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

void DeviceTest::SetUp() {
  device_ = OpenTested(GetParam());
  if (HasFailure()) FAIL() << "no device to go on with";
  if (device_ == nullptr) GTEST_SKIP() << "no " << GetParam() << " device here";
}

void DeviceTest::TearDown() {
  for (const auto& [data, bytes] : allocations_) device_->Free(data, bytes);
}

View DeviceTest::Allocate(int64_t rows, int64_t cols, DType dtype) {
  View view = {nullptr, rows, cols, dtype};
  view.data = device_->Allocate(std::max<int64_t>(view.bytes(), 4));
  EXPECT_NE(view.data, nullptr);
  allocations_.emplace_back(view.data, std::max<int64_t>(view.bytes(), 4));
  return view;
}

View DeviceTest::Upload(int64_t rows, int64_t cols, const std::vector<float>& values) {
  EXPECT_EQ(rows * cols, std::ssize(values));
  const View view = Allocate(rows, cols, DType::kF32);
  device_->CopyIn(view, values.data());
  return view;
}

View DeviceTest::UploadTotal(double value) {
  const View view = Allocate(1, 1, DType::kF64);
  device_->CopyIn(view, &value);
  return view;
}

double DeviceTest::DownloadTotal(View total) {
  double value = 0;
  device_->CopyOut(&value, total);
  const BackendStatus status = device_->Synchronize();
  EXPECT_TRUE(status.ok()) << status.text;
  return value;
}

View DeviceTest::UploadIds(const std::vector<int32_t>& ids) {
  const View view = Allocate(std::ssize(ids), 1, DType::kI32);
  device_->CopyIn(view, ids.data());
  return view;
}

View DeviceTest::Fresh(int64_t rows, int64_t cols) {
  return Upload(rows, cols,
                std::vector<float>(static_cast<size_t>(rows * cols),
                                   std::numeric_limits<float>::quiet_NaN()));
}

View DeviceTest::As(DType dtype, View x) {
  const View copy = Allocate(x.rows, x.cols, dtype);
  device_->Copy(copy, x);
  return copy;
}

std::vector<float> DeviceTest::Download(View x) {
  if (x.dtype != DType::kF32) x = As(DType::kF32, x);
  std::vector<float> values(static_cast<size_t>(x.elements()));
  device_->CopyOut(values.data(), x);
  const BackendStatus status = device_->Synchronize();
  EXPECT_TRUE(status.ok()) << status.text;
  return values;
}

}  // namespace weft
