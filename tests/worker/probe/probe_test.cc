// These tests ask what a probe measures within its time; the measuring itself is tested by `weft
// calibrate`.
#include "worker/probe/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/worker/passing_backend.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/backend/fp8.h"
#include "worker/probe/probe_rates.h"
#include "worker/probe/product.h"

namespace weft {
namespace {

double Flops(const MatmulPoint& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

TEST(MeasureProduct, TellsARateWithinItsTime) {
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const absl::StatusOr<double> rate = MeasureProduct(*device, 64, 0.01);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 1e6);
  EXPECT_LT(*rate, 1e14);
}

TEST(ShapesWithin, GrowWithTheSpeedAndTheTimeFromTheSmallest) {
  std::vector<MatmulPoint> before;
  for (const double flops_per_s : {1e6, 1e9, 50e9, 150e9, 10e12, 1e15}) {
    const std::vector<MatmulPoint> shapes = ShapesWithin(flops_per_s, 15);
    ASSERT_GE(shapes.size(), before.size());
    // A prefix: what a slow device measures, a fast one measures too.
    EXPECT_TRUE(std::equal(before.begin(), before.end(), shapes.begin()));
    before = shapes;
  }
  EXPECT_EQ(before.size(), 80);
  EXPECT_GE(ShapesWithin(50e9, 15).size(), 40);
}

TEST(ShapesWithin, FitTheirTime) {
  for (const double flops_per_s : {1e9, 50e9, 150e9}) {
    for (const double seconds : {0.5, 5.0, 20.0}) {
      double sum_s = 0;
      for (const MatmulPoint& shape : ShapesWithin(flops_per_s, seconds)) {
        sum_s += 3 * Flops(shape) / flops_per_s;
      }
      EXPECT_LE(sum_s, seconds);
    }
  }
}

TEST(ShapesWithin, NamesEachShapeOnce) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;
  for (const MatmulPoint& shape : ShapesWithin(1e15, 60)) {
    EXPECT_TRUE(seen.emplace(shape.m, shape.n, shape.k).second);
  }
}

// Computes nothing, and looks at what products it is asked for.
class IdleDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;

  int64_t wrong_products = 0;

  void MatMul(View /*a*/, Transpose /*transpose_a*/, View /*b*/, Transpose /*transpose_b*/,
              float /*beta*/, View /*c*/) override {
    wrong_products += random_bytes_ > 0 ? 0 : 1;
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    const auto is_aligned = [](View x) {
      return reinterpret_cast<uintptr_t>(x.data) % kFp8Unit == 0 && x.cols % kFp8Unit == 0;
    };
    const bool fits = FitsFp8MatMul(a, b, beta, c) && is_aligned(a.codes) && is_aligned(b.codes) &&
                      is_aligned(c) && *static_cast<const float*>(a.scale.data) == 1;
    wrong_products += fits ? 0 : 1;
  }
  void ToFp8(View x, View codes, View transposed, View scale) override {
    const bool fits = x.dtype == DType::kBf16 && x.elements() == codes.elements() &&
                      random_bytes_ >= x.bytes() && transposed.data == nullptr;
    wrong_products += fits ? 0 : 1;
    *static_cast<float*>(scale.data) = 1;
  }
  // Takes the numbers that fill operands.
  void CopyIn(View to, const void* from_host) override {
    const auto* numbers = static_cast<const float*>(from_host);
    double squares = 0;
    for (int64_t i = 0; i < to.elements(); ++i) squares += numbers[i] * numbers[i];
    EXPECT_NEAR(squares / static_cast<double>(to.elements()), 1, 0.01);
    random_ = to.data;
  }
  void Copy(View to, View from) override {
    EXPECT_EQ(from.data, random_);
    const bool goes_on = to.data == end_;
    random_bytes_ = (goes_on ? random_bytes_ : 0) + to.bytes();
    end_ = static_cast<char*>(to.data) + to.bytes();
  }
  void Zero(View /*x*/) override {}
  void Add(View /*x*/, View /*y*/) override {}
  void AddBias(View /*bias*/, View /*x*/) override {}
  void BiasGradient(View /*dy*/, View /*dbias*/) override {}
  void LayerNorm(View /*x*/, View /*weight*/, View /*bias*/, const NormConstants& /*constants*/,
                 View /*y*/, View /*mean*/, View /*rstd*/) override {}
  void LayerNormGradient(View /*dy*/, View /*x*/, View /*weight*/,
                         const NormConstants& /*constants*/, View /*mean*/, View /*rstd*/,
                         View /*dx*/, View /*dweight*/, View /*dbias*/) override {}
  void Gelu(View /*x*/, View /*y*/) override {}
  void GeluGradient(View /*dy*/, View /*x*/, View /*dx*/) override {}
  void Attention(const AttentionShape& /*shape*/, View /*q*/, View /*k*/, View /*v*/,
                 View /*first_visible*/, View /*o*/, View /*lse*/, View /*scratch*/) override {}
  void AttentionGradient(const AttentionShape& /*shape*/, View /*q*/, View /*k*/, View /*v*/,
                         View /*first_visible*/, View /*o*/, View /*lse*/, View /*dout*/,
                         View /*dq*/, View /*dk*/, View /*dv*/, View /*scratch*/) override {}

 private:
  const void* random_ = nullptr;
  const void* end_ = nullptr;  // of what was filled last
  int64_t random_bytes_ = 0;   // that lie before it
};

TEST(MeasureRates, TimesProductsOfEachPrecisionThatTheDeviceHas) {
  const std::unique_ptr<Device> cpu = MakeCpuDevice({});
  for (const bool has_fp8 : {false, true}) {
    IdleDevice device(*cpu);
    std::vector<Precision> precisions = {Precision::kFp32, Precision::kBf16};
    if (has_fp8) precisions.push_back(Precision::kFp8);
    const absl::StatusOr<DeviceRates> rates =
        MeasureRates(device, 1, HostRateSizes(), precisions, 0.5);
    ASSERT_TRUE(rates.ok()) << rates.status();
    std::map<Precision, int> points;
    for (const MatmulPoint& point : rates->matmuls) ++points[point.precision];
    EXPECT_EQ(points.size(), precisions.size());
    for (const Precision precision : precisions) EXPECT_GE(points[precision], 3);
    EXPECT_EQ(device.wrong_products, 0);
  }
}

TEST(Probe, RefusesUnknownBackendsAndKindsByName) {
  ProbeOptions options;
  options.backend = "tpu";
  EXPECT_EQ(Probe(options).message(), "--backend: \"tpu\" is not a backend; use cpu or cuda");
  EXPECT_EQ(ParseProbeKind("speed").status().message(),
            "--probe: \"speed\" is unknown; use devices, rates, product or links");
  EXPECT_EQ(ProbeExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ProbeExitCode(absl::InvalidArgumentError("x")), 2);
  EXPECT_EQ(ProbeExitCode(absl::UnimplementedError("x")), 2);
  EXPECT_EQ(ProbeExitCode(absl::UnavailableError("x")), 1);
}

}  // namespace
}  // namespace weft
