// The operations of device.h against references in double; attention_test.cc and
// cross_entropy_test.cc have the larger ones.
#include "worker/backend/device.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/cpu/kernels/exp.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class DeviceOps : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Backends, DeviceOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

// y of [rows, cols].
Doubles LayerNormOf(const Doubles& x, const Doubles& weight, const Doubles& bias, double eps) {
  const size_t cols = weight.size();
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / cols; ++row) {
    double mean = 0;
    double variance = 0;
    for (size_t i = 0; i < cols; ++i) mean += x[row * cols + i] / static_cast<double>(cols);
    for (size_t i = 0; i < cols; ++i) {
      variance += std::pow(x[row * cols + i] - mean, 2) / static_cast<double>(cols);
    }
    for (size_t i = 0; i < cols; ++i) {
      y[row * cols + i] =
          (x[row * cols + i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i];
    }
  }
  return y;
}

TEST(Exp, IsWithinOneUlpOfTheTrueValue) {
  double worst = 0;
  float worst_at = 0;
  for (float x = -87.33F; x < 88.72F; x += 0.000731F) {
    const double expected = std::exp(static_cast<double>(x));
    const auto rounded = static_cast<float>(expected);
    const double ulp =
        static_cast<double>(std::nextafter(rounded, INFINITY)) - static_cast<double>(rounded);
    const double error = std::abs(static_cast<double>(Exp(x)) - expected) / ulp;
    if (error > worst) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 1.0) << "at " << worst_at;
}

TEST(Exp, HasTheRightEnds) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-88), 0);
  EXPECT_EQ(Exp(-INFINITY), 0);
  EXPECT_EQ(Exp(89), INFINITY);
  EXPECT_EQ(Exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_P(DeviceOps, MatMulHoldsForAllTransposesAndShapes) {
  struct Case {
    int64_t m, k, n;
  };
  for (const auto& [m, k, n] :
       {Case{1, 1, 1}, {3, 5, 7}, {1, 128, 33}, {64, 1, 17}, {65, 300, 129}}) {
    const std::vector<float> a = Normal(m * k, 1);
    const std::vector<float> b = Normal(k * n, 2);
    const std::vector<float> start = Normal(m * n, 3);
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        for (const float beta : {0.0F, 1.0F}) {
          Doubles expected = ToDoubles(start);
          for (int64_t i = 0; i < m * n; ++i) {
            double total = beta * start[static_cast<size_t>(i)];
            for (int64_t j = 0; j < k; ++j) {
              const int64_t a_at = flip_a ? j * m + i / n : i / n * k + j;
              const int64_t b_at = flip_b ? i % n * k + j : j * n + i % n;
              total += static_cast<double>(a[static_cast<size_t>(a_at)]) *
                       static_cast<double>(b[static_cast<size_t>(b_at)]);
            }
            expected[static_cast<size_t>(i)] = total;
          }
          const View c = beta == 0 ? Fresh(m, n) : Upload(m, n, start);
          device().MatMul(flip_a ? Upload(k, m, a) : Upload(m, k, a),
                          flip_a ? Transpose::kYes : Transpose::kNo,
                          flip_b ? Upload(n, k, b) : Upload(k, n, b),
                          flip_b ? Transpose::kYes : Transpose::kNo, beta, c);
          EXPECT_LT(RelativeError(Download(c), expected), 5e-7)
              << m << "x" << k << "x" << n << " flips " << flip_a << flip_b << " beta " << beta;
        }
      }
    }
  }
}

TEST_P(DeviceOps, ElementwiseOperationsDoWhatTheySay) {
  const View x = Upload(2, 3, {1, 2, 3, 4, 5, 6});
  const View y = Upload(2, 3, {10, 20, 30, 40, 50, 60});
  device().Add(x, y);
  EXPECT_EQ(Download(y), (std::vector<float>{11, 22, 33, 44, 55, 66}));
  device().Scale(y, 0.5);
  EXPECT_EQ(Download(y), (std::vector<float>{5.5, 11, 16.5, 22, 27.5, 33}));
  device().AddBias(Upload(1, 3, {1, 0, -1}), x);
  EXPECT_EQ(Download(x), (std::vector<float>{2, 2, 2, 5, 5, 5}));
  const View dbias = Upload(1, 3, {100, 0, 0});
  device().BiasGradient(x, dbias);
  EXPECT_EQ(Download(dbias), (std::vector<float>{107, 7, 7}));
  device().Copy(y, x);
  EXPECT_EQ(Download(y), Download(x));
  device().Zero(x);
  EXPECT_THAT(Download(x), Each(0.0F));
}

TEST_P(DeviceOps, SumsOverManyRowsKeepTheirDigits) {
  // 20,000 rows of one sign: single-precision sums would be off by 1e-5.
  constexpr int64_t kRows = 20000;
  constexpr int64_t kCols = 300;  // more than one block of columns
  std::vector<float> dy = Normal(kRows * kCols, 5);
  for (float& value : dy) value += 3;
  Doubles expected(kCols);
  long double squares = 0;
  for (size_t i = 0; i < dy.size(); ++i) {
    expected[i % kCols] += static_cast<double>(dy[i]);
    squares += static_cast<long double>(dy[i]) * static_cast<long double>(dy[i]);
  }
  const View dbias = Upload(1, kCols, std::vector<float>(kCols));
  const View dy_view = Upload(kRows, kCols, dy);
  device().BiasGradient(dy_view, dbias);
  EXPECT_LT(RelativeError(Download(dbias), expected), 6e-8);
  // Six million roundings in double.
  const View total = UploadTotal(0);
  device().AddSumOfSquares(&dy_view, 1, total);
  EXPECT_NEAR(DownloadTotal(total) / static_cast<double>(squares), 1, 1e-11);
  // A view may be of any length, also one that a device does not read in equal pieces.
  const View grown = UploadTotal(60);
  const View seven = Upload(1, 7, {1, 2, 3, 4, 5, 6, 7});
  device().AddSumOfSquares(&seven, 1, grown);
  EXPECT_EQ(DownloadTotal(grown), 200);
}

TEST_P(DeviceOps, LayerNormAgreesAndItsGradientIsTheDerivative) {
  constexpr double kEps = 1e-5;
  // Rows of a few elements, and of so many that a device keeps and shares them in another way.
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{3, 2}, {2, 7}, {4, 33}, {2, 300}, {1, 1028}, {1, 4100}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
    std::vector<float> x = Normal(rows * cols, 1);
    for (float& value : x) value += 10;  // a mean that swallows digits
    const std::vector<float> weight = Normal(cols, 2);
    const std::vector<float> bias = Normal(cols, 3);
    const std::vector<float> dy = Normal(rows * cols, 4);
    const std::vector<float> start = Normal(rows * cols, 5);  // gradients accumulate

    const View x_view = Upload(rows, cols, x);
    const View weight_view = Upload(1, cols, weight);
    const View y = Fresh(rows, cols);
    const View mean = Fresh(rows, 1);
    const View rstd = Fresh(rows, 1);
    device().LayerNorm(x_view, weight_view, Upload(1, cols, bias), {.eps = kEps}, y, mean, rstd);
    const Doubles x64 = ToDoubles(x);
    const Doubles weight64 = ToDoubles(weight);
    const Doubles bias64 = ToDoubles(bias);
    EXPECT_LT(RelativeError(Download(y), LayerNormOf(x64, weight64, bias64, kEps)), 1e-6);

    const View dx = Upload(rows, cols, start);
    const View dweight = Upload(1, cols, bias);
    const View dbias = Upload(1, cols, weight);
    device().LayerNormGradient(Upload(rows, cols, dy), x_view, weight_view, {}, mean, rstd, dx,
                               dweight, dbias);
    Doubles expected_dx = DifferenceQuotient(
        [&](const Doubles& v) { return InnerProduct(LayerNormOf(v, weight64, bias64, kEps), dy); },
        x64);
    for (size_t i = 0; i < start.size(); ++i) expected_dx[i] += static_cast<double>(start[i]);
    Doubles expected_dweight = DifferenceQuotient(
        [&](const Doubles& v) { return InnerProduct(LayerNormOf(x64, v, bias64, kEps), dy); },
        weight64);
    Doubles expected_dbias = DifferenceQuotient(
        [&](const Doubles& v) { return InnerProduct(LayerNormOf(x64, weight64, v, kEps), dy); },
        bias64);
    for (size_t i = 0; i < weight.size(); ++i) {
      expected_dweight[i] += static_cast<double>(bias[i]);
      expected_dbias[i] += static_cast<double>(weight[i]);
    }
    EXPECT_LT(RelativeError(Download(dx), expected_dx), 1e-6);
    EXPECT_LT(RelativeError(Download(dweight), expected_dweight), 1e-6);
    EXPECT_LT(RelativeError(Download(dbias), expected_dbias), 1e-6);
  }
}

TEST_P(DeviceOps, GeluAgreesElementByElementAndItsGradientIsTheDerivative) {
  std::vector<float> x;
  for (float v = -6; v <= 6; v += 0.0137F) x.push_back(v);
  const int64_t count = std::ssize(x);
  const View x_view = Upload(1, count, x);
  const View y = Fresh(1, count);
  device().Gelu(x_view, y);
  const std::vector<float> actual = Download(y);
  for (size_t i = 0; i < x.size(); ++i) {
    // The first: 1 + tanh u of the reference itself cancels for negative x.
    const double expected = GeluOf(static_cast<double>(x[i]));
    EXPECT_NEAR(static_cast<double>(actual[i]), expected, 1e-12 + 4e-6 * std::abs(expected))
        << "gelu(" << x[i] << ")";
  }
  const std::vector<float> dy = Normal(count, 7);
  const View dx = Upload(1, count, dy);  // written over dy
  device().GeluGradient(dx, x_view, dx);
  Doubles expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]);
    expected[i] = static_cast<double>(dy[i]) * (GeluOf(at + 1e-5) - GeluOf(at - 1e-5)) / 2e-5;
  }
  EXPECT_LT(RelativeError(Download(dx), expected), 2e-7);
}

TEST_P(DeviceOps, GeluOfLargeValuesIsTheIdentityOrZeroAndPassesNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const View x = Upload(1, 5, {50, -50, 1e6, -1e6, nan});
  const View y = Fresh(1, 5);
  device().Gelu(x, y);
  const std::vector<float> value = Download(y);
  EXPECT_EQ((std::vector<float>{value.begin(), value.begin() + 4}),
            (std::vector<float>{50, 0, 1e6, 0}));
  EXPECT_TRUE(std::isnan(value[4]));
  device().GeluGradient(Upload(1, 5, {1, 1, 1, 1, 1}), x, y);
  const std::vector<float> slope = Download(y);
  EXPECT_EQ((std::vector<float>{slope.begin(), slope.begin() + 4}),
            (std::vector<float>{1, 0, 1, 0}));
  EXPECT_TRUE(std::isnan(slope[4]));
}

TEST_P(DeviceOps, EmbedTakesRowsOfItsRangeAndZerosElsewhere) {
  // Ids 4, 5, 6 are here.
  const View ids = UploadIds({5, 9, 3, 4});
  const View table = Upload(3, 2, {40, 41, 50, 51, 60, 61});
  const View positions = Upload(3, 2, {1, 2, 3, 4, 100, 100});  // more than are taken
  const View position_ids = UploadIds({0, 1, 0, 1});
  const View out = Fresh(4, 2);
  device().Embed(ids, table, 4, positions, position_ids, out);
  EXPECT_EQ(Download(out), (std::vector<float>{51, 53, 3, 4, 1, 2, 43, 45}));
  device().Embed(ids, table, 4, {}, {}, out);
  EXPECT_EQ(Download(out), (std::vector<float>{50, 51, 0, 0, 0, 0, 40, 41}));
}

TEST_P(DeviceOps, EmbedGradientAddsEachRowWhereItCameFrom) {
  const View ids = UploadIds({5, 9, 5, 4});
  const View dout = Upload(4, 2, {1, 2, 3, 4, 5, 6, 7, 8});
  const View dtable = Upload(3, 2, {0, 0, 100, 0, 0, 0});
  const View dpositions = Upload(2, 2, {0, 0, 0, 1000});
  device().EmbedGradient(ids, dout, 4, UploadIds({0, 1, 0, 1}), dtable, dpositions);
  EXPECT_EQ(Download(dtable), (std::vector<float>{7, 8, 106, 8, 0, 0}));
  EXPECT_EQ(Download(dpositions), (std::vector<float>{6, 8, 10, 1012}));
  device().EmbedGradient(ids, dout, 4, {}, dtable, {});
  EXPECT_EQ(Download(dtable), (std::vector<float>{14, 16, 112, 16, 0, 0}));
}

// To the bit: one row after the other, whatever ids lie between.
TEST_P(DeviceOps, EmbedGradientAddsRowsInTheirOrder) {
  constexpr int kRows = 700;
  constexpr int kFirstId = 3;
  constexpr int kEntries = 45;
  for (const int cols : {12, 300}) {
    std::vector<int32_t> ids(kRows);
    for (int row = 0; row < kRows; ++row) {
      ids[static_cast<size_t>(row)] = row % 3 == 0 ? 7 : (row * 31 + row / 7) % 60;
    }
    const std::vector<float> dout = Normal(int64_t{kRows} * cols, 1);
    std::vector<float> expected = Normal(int64_t{kEntries} * cols, 2);
    const View dtable = Upload(kEntries, cols, expected);
    for (size_t row = 0; row < kRows; ++row) {
      const int entry = ids[row] - kFirstId;
      if (entry < 0 || entry >= kEntries) continue;
      for (int col = 0; col < cols; ++col) {
        expected[static_cast<size_t>(entry * cols + col)] +=
            dout[row * static_cast<size_t>(cols) + static_cast<size_t>(col)];
      }
    }
    device().EmbedGradient(UploadIds(ids), Upload(kRows, cols, dout), kFirstId, {}, dtable, {});
    EXPECT_EQ(Download(dtable), expected) << cols;
  }
}

TEST_P(DeviceOps, AdamwFollowsThePaperOverTenSteps) {
  constexpr int64_t kCount = 1003;
  constexpr double kScale = 0.3;
  constexpr double kDecay = 0.1;
  AdamwParameters adamw = {
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .gradient_scale = UploadTotal(kScale)};
  const std::vector<float> start = Normal(kCount, 1);
  Doubles p = ToDoubles(start);
  Doubles m(kCount);
  Doubles v(kCount);
  const View param = Upload(1, kCount, start);
  const View exp_avg = Upload(1, kCount, std::vector<float>(kCount));
  const View exp_avg_sq = Upload(1, kCount, std::vector<float>(kCount));
  for (adamw.step = 1; adamw.step <= 10; ++adamw.step) {
    const std::vector<float> gradient = Normal(kCount, static_cast<uint32_t>(adamw.step), 0.01F);
    const AdamwSegment segment = {
        Upload(1, kCount, gradient), param, exp_avg, exp_avg_sq, {}, kDecay};
    device().updates().Adamw(adamw, &segment, 1);
    const double step = static_cast<double>(adamw.step);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = kScale * static_cast<double>(gradient[i]);
      m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
      v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(adamw.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(adamw.beta2, step));
      p[i] -= adamw.lr * (m_hat / (std::sqrt(v_hat) + adamw.eps) + kDecay * p[i]);
    }
  }
  EXPECT_LT(RelativeError(Download(param), p), 2e-7);
  EXPECT_LT(RelativeError(Download(exp_avg), m), 5e-7);
  EXPECT_LT(RelativeError(Download(exp_avg_sq), v), 5e-7);
}

TEST_P(DeviceOps, AdamwDividesByTheRootPlusEpsNotByTheRootOfTheSum) {
  // A gradient as small as eps: where eps stands decides the update.
  const View param = Upload(1, 1, {0});
  const AdamwSegment segment = {Upload(1, 1, {1e-8F}), param, Upload(1, 1, {0}), Upload(1, 1, {0})};
  device().updates().Adamw({.lr = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1}, &segment,
                           1);
  EXPECT_NEAR(static_cast<double>(Download(param)[0]), -0.5, 1e-6);
}

TEST_P(DeviceOps, LionFollowsThePaperOverTenSteps) {
  constexpr int64_t kCount = 1003;
  constexpr double kScale = 0.3;
  const LionParameters lion = {.lr = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .weight_decay = 0.1,
                               .gradient_scale = UploadTotal(kScale)};
  const std::vector<float> start = Normal(kCount, 1);
  Doubles p = ToDoubles(start);
  Doubles m(kCount);
  const View param = Upload(1, kCount, start);
  const View exp_avg = Upload(1, kCount, std::vector<float>(kCount));
  for (uint32_t step = 1; step <= 10; ++step) {
    const std::vector<float> gradient = Normal(kCount, step, 0.01F);
    device().updates().Lion(lion, Upload(1, kCount, gradient), param, exp_avg);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = kScale * static_cast<double>(gradient[i]);
      const double update = lion.beta1 * m[i] + (1 - lion.beta1) * g;
      ASSERT_GT(std::abs(update), 1e-9) << "a sign that rounding decides says nothing";
      m[i] = lion.beta2 * m[i] + (1 - lion.beta2) * g;
      p[i] -= lion.lr * ((update > 0 ? 1 : -1) + lion.weight_decay * p[i]);
    }
  }
  EXPECT_LT(RelativeError(Download(param), p), 2e-7);
  EXPECT_LT(RelativeError(Download(exp_avg), m), 5e-7);
}

TEST_P(DeviceOps, LionLeavesAloneWhatHasNeitherGradientNorMoment) {
  const View param = Upload(1, 3, {1, 2, -4});
  const View exp_avg = Upload(1, 3, {0, -1, 0});
  device().updates().Lion({.lr = 0.5, .beta1 = 0.75, .beta2 = 0.5}, Upload(1, 3, {0, 2, -8}), param,
                          exp_avg);
  EXPECT_EQ(Download(param), (std::vector<float>{1, 2.5, -3.5}));  // -0.75 + 0.5 is below zero
  EXPECT_EQ(Download(exp_avg), (std::vector<float>{0, 0.5, -4}));
}

TEST_P(DeviceOps, SgdFollowsItsFormula) {
  const View param = Upload(1, 3, {1, 2, -4});
  device().updates().Sgd(0.5, 0.25, UploadTotal(2), Upload(1, 3, {1, 0, 3}), param);
  EXPECT_EQ(Download(param), (std::vector<float>{-0.125, 1.75, -6.5}));
}

TEST_P(DeviceOps, AWrongShapeIsRefusedOnceAtSynchronizeAndTouchesNothing) {
  const View x = Upload(2, 3, {1, 2, 3, 4, 5, 6});
  device().MatMul(x, Transpose::kNo, x, Transpose::kNo, 0, x);
  device().AddBias(Upload(1, 2, {1, 1}), x);
  const BackendStatus status = device().Synchronize();
  EXPECT_EQ(status.code, static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(status.text, HasSubstr("MatMul"));
  EXPECT_THAT(status.text, HasSubstr("[2, 3]"));
  EXPECT_TRUE(device().Synchronize().ok());
  EXPECT_EQ(Download(x), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_P(DeviceOps, MemoryIsAlignedAndMoreThanTheMachineHasIsRefused) {
  void* const data = device().Allocate(5'000'000);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(std::bit_cast<uintptr_t>(data) % 4096, 0U);
  device().Free(data, 5'000'000);
  EXPECT_EQ(device().Allocate(int64_t{1} << 55), nullptr);
}

TEST_P(DeviceOps, HostMemoryIsZeroedAlignedAndOpenToCopiesOfBothKinds) {
  constexpr int64_t kBytes = 5'000'000;
  void* const data = device().AllocateHost(kBytes);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(std::bit_cast<uintptr_t>(data) % 4096, 0U);
  const View host = {data, 1, kBytes / 4};
  std::vector<float> values(kBytes / 4, 1);
  device().CopyOut(values.data(), host);
  EXPECT_THAT(values, Each(0));
  const std::vector<float> normal = Normal(kBytes / 4, 3);
  device().CopyIn(host, normal.data());
  const View there = Fresh(1, kBytes / 4);
  device().Fetch(there, host);
  device().AwaitTransfers();
  device().Scale(there, 2);
  device().Store(host, there);
  device().CopyOut(values.data(), host);  // waits for it
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 2 * normal[i]) << i;
  EXPECT_EQ(Download(there), values);
  device().FreeHost(data, kBytes);
  EXPECT_EQ(device().AllocateHost(int64_t{1} << 55), nullptr);
}

// Two places and one array, as an update of offloaded states: a piece is there when it is worked on
// and gone before the next one takes its place.
TEST_P(DeviceOps, TransfersKeepToTheOrderOfTheWorkAroundThem) {
  constexpr int64_t kPieces = 7;
  constexpr int64_t kElements = 300'000;
  const int64_t bytes = kPieces * kElements * 4;
  void* const data = device().AllocateHost(bytes);
  ASSERT_NE(data, nullptr);
  const View all = {data, kPieces, kElements};
  const std::vector<float> normal = Normal(kPieces * kElements, 4);
  device().CopyIn(all, normal.data());
  const View places[] = {Fresh(1, kElements), Fresh(1, kElements)};
  device().Fetch(places[0], all.RowRange(0, 1));
  for (int64_t piece = 0; piece < kPieces; ++piece) {
    device().AwaitTransfers();
    if (piece + 1 < kPieces) {
      device().Fetch(places[(piece + 1) % 2], all.RowRange(piece + 1, 1));
    }
    device().Scale(places[piece % 2], static_cast<double>(piece + 2));
    device().Store(all.RowRange(piece, 1), places[piece % 2]);
  }
  std::vector<float> values(normal.size());
  device().CopyOut(values.data(), all);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto factor = static_cast<float>(i / kElements + 2);
    ASSERT_EQ(values[i], normal[i] * factor) << i;
  }
  EXPECT_TRUE(device().Synchronize().ok());
  device().FreeHost(data, bytes);
}

TEST_P(DeviceOps, DenormalsAreFlushed) {
  const View x = Upload(1, 1, {1e-38F});
  device().Scale(x, 1e-3);
  EXPECT_EQ(Download(x)[0], 0);
}

TEST_P(DeviceOps, TheSameCallsGiveTheSameBits) {
  constexpr int64_t kRows = 67;
  constexpr int64_t kCols = 130;
  const auto run = [&] {
    const View x = Upload(kRows, kCols, Normal(kRows * kCols, 1));
    const View weight = Upload(1, kCols, Normal(kCols, 2));
    const View y = Fresh(kRows, kCols);
    const View mean = Fresh(kRows, 1);
    const View rstd = Fresh(kRows, 1);
    device().LayerNorm(x, weight, weight, {.eps = 1e-5}, y, mean, rstd);
    const View products = Fresh(kCols, kCols);
    device().MatMul(y, Transpose::kYes, x, Transpose::kNo, 0, products);
    device().Gelu(products, products);
    const View dweight = Upload(1, kCols, std::vector<float>(kCols));
    const View dbias = Upload(1, kCols, std::vector<float>(kCols));
    const View dx = Upload(kRows, kCols, std::vector<float>(kRows * kCols));
    device().LayerNormGradient(y, x, weight, {}, mean, rstd, dx, dweight, dbias);
    std::vector<float> all = Download(products);
    for (const View part : {dx, dweight, dbias}) {
      const std::vector<float> values = Download(part);
      all.insert(all.end(), values.begin(), values.end());
    }
    const View total = UploadTotal(0);
    device().AddSumOfSquares(&products, 1, total);
    all.push_back(static_cast<float>(DownloadTotal(total)));
    return all;
  };
  const std::vector<float> first = run();
  const std::vector<float> second = run();
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace weft
