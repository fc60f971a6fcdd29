// The operations that only the llama family needs, against references in double.
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"
#include "worker/backend/part_norms.h"

namespace weft {
namespace {

class LlamaOps : public DeviceTest {
 protected:
  void ExpectGluAgrees(Gate f);
};
INSTANTIATE_TEST_SUITE_P(Backends, LlamaOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

Doubles RmsNormOf(const Doubles& x, const Doubles& weight, double eps) {
  const size_t cols = weight.size();
  Doubles y(x.size());
  for (size_t row = 0; row < x.size() / cols; ++row) {
    double squares = 0;
    for (size_t i = 0; i < cols; ++i) squares += std::pow(x[row * cols + i], 2);
    const double root = std::sqrt(squares / static_cast<double>(cols) + eps);
    for (size_t i = 0; i < cols; ++i) y[row * cols + i] = x[row * cols + i] / root * weight[i];
  }
  return y;
}

TEST_P(LlamaOps, RmsNormAgreesAndItsGradientIsTheDerivative) {
  constexpr double kEps = 1e-5;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 1}, {3, 2}, {4, 33}, {2, 300}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
    const std::vector<float> x = Normal(rows * cols, 1);
    const std::vector<float> weight = Normal(cols, 2);
    const std::vector<float> dy = Normal(rows * cols, 3);
    const std::vector<float> start = Normal(rows * cols, 4);  // gradients accumulate
    const std::vector<float> weight_start = Normal(cols, 5);
    const View x_view = Upload(rows, cols, x);
    const View weight_view = Upload(1, cols, weight);
    const View y = Fresh(rows, cols);
    const View rstd = Fresh(rows, 1);
    device().RmsNorm(x_view, weight_view, {.eps = kEps}, y, rstd);
    const Doubles x64 = ToDoubles(x);
    const Doubles weight64 = ToDoubles(weight);
    EXPECT_LT(RelativeError(Download(y), RmsNormOf(x64, weight64, kEps)), 2e-7);

    const View dx = Upload(rows, cols, start);
    const View dweight = Upload(1, cols, weight_start);
    device().RmsNormGradient(Upload(rows, cols, dy), x_view, weight_view, {}, rstd, dx, dweight);
    Doubles expected_dx = DifferenceQuotient(
        [&](const Doubles& v) { return InnerProduct(RmsNormOf(v, weight64, kEps), dy); }, x64);
    for (size_t i = 0; i < start.size(); ++i) expected_dx[i] += static_cast<double>(start[i]);
    Doubles expected_dweight = DifferenceQuotient(
        [&](const Doubles& v) { return InnerProduct(RmsNormOf(x64, v, kEps), dy); }, weight64);
    for (size_t i = 0; i < weight.size(); ++i) {
      expected_dweight[i] += static_cast<double>(weight_start[i]);
    }
    EXPECT_LT(RelativeError(Download(dx), expected_dx), 1e-6);
    EXPECT_LT(RelativeError(Download(dweight), expected_dweight), 1e-6);
  }
}

// Two devices make of the halves of a row what RmsNorm makes of the row.
TEST_P(LlamaOps, RmsNormOfPartsIsThatOfTheWholeRow) {
  constexpr NormConstants kConstants = {.eps = 1e-5, .offset = 1};
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 1}, {4, 33}, {9, 64}, {2, 300}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
    const std::vector<float> x = Normal(rows * 2 * cols, 1), dy = Normal(rows * 2 * cols, 2);
    const std::vector<float> weight = Normal(2 * cols, 3), start = Normal(rows * 2 * cols, 4);
    const View whole_y = Fresh(rows, 2 * cols), whole_rstd = Fresh(rows, 1);
    const View whole_dx = Upload(rows, 2 * cols, start), whole_dweight = Fresh(1, 2 * cols);
    device().Zero(whole_dweight);
    device().RmsNorm(Upload(rows, 2 * cols, x), Upload(1, 2 * cols, weight), kConstants, whole_y,
                     whole_rstd);
    device().RmsNormGradient(Upload(rows, 2 * cols, dy), Upload(rows, 2 * cols, x),
                             Upload(1, 2 * cols, weight), kConstants, whole_rstd, whole_dx,
                             whole_dweight);
    // Columns of half `part` of rows of 2 * cols.
    const auto half = [&](const std::vector<float>& all, int64_t part) {
      std::vector<float> of;
      for (int64_t at = part * cols; at < std::ssize(all); at += 2 * cols) {
        of.insert(of.end(), all.begin() + at, all.begin() + at + cols);
      }
      return of;
    };
    const double factor = 1.0 / static_cast<double>(2 * cols);
    View xs[2], means[2], rstd[2], weights[2], dys[2];
    for (int64_t part = 0; part < 2; ++part) {
      xs[part] = Upload(rows, cols, half(x, part));
      dys[part] = Upload(rows, cols, half(dy, part));
      weights[part] = Upload(1, cols, half(weight, part));
      rstd[part] = Fresh(rows, 1);
      means[part] = Fresh(rows, 1);
      device().part_norms().Squares(xs[part], factor, rstd[part]);
    }
    device().Add(rstd[0], rstd[1]);
    device().Copy(rstd[0], rstd[1]);
    for (int64_t part = 0; part < 2; ++part) {
      const View y = Fresh(rows, cols);
      device().part_norms().Norm(xs[part], weights[part], kConstants, y, rstd[part]);
      EXPECT_LT(RelativeError(Download(y), ToDoubles(half(Download(whole_y), part))), 2e-7);
      EXPECT_LT(RelativeError(Download(rstd[part]), ToDoubles(Download(whole_rstd))), 2e-7);
      device().part_norms().Products(dys[part], xs[part], weights[part], kConstants, rstd[part],
                                     factor, means[part]);
    }
    device().Add(means[0], means[1]);
    for (int64_t part = 0; part < 2; ++part) {
      const View dx = Upload(rows, cols, half(start, part)), dweight = Fresh(1, cols);
      device().Zero(dweight);
      device().part_norms().Gradient(dys[part], xs[part], weights[part], kConstants, rstd[part],
                                     means[1], dx, dweight);
      EXPECT_LT(RelativeError(Download(dx), ToDoubles(half(Download(whole_dx), part))), 1e-6);
      EXPECT_LT(RelativeError(Download(dweight), ToDoubles(half(Download(whole_dweight), part))),
                1e-6);
    }
  }
}

TEST_P(LlamaOps, RmsNormOfPartsRefusesWhatDoesNotFit) {
  const View x = Upload(2, 3, std::vector<float>(6, 1.0F)), row = Upload(1, 3, {1, 1, 1});
  const View column = Upload(2, 1, {1, 1}), short_column = Upload(1, 1, {1});
  const auto is_refused = [&] { return !device().Synchronize().ok(); };
  device().part_norms().Squares(x, 1, short_column);
  EXPECT_TRUE(is_refused());
  device().part_norms().Norm(x, column, {}, x, column);
  EXPECT_TRUE(is_refused());
  device().part_norms().Products(x, x, row, {}, column, 1, short_column);
  EXPECT_TRUE(is_refused());
  device().part_norms().Gradient(x, x, row, {}, column, short_column, x, row);
  EXPECT_TRUE(is_refused());
}

TEST_P(LlamaOps, RmsNormOfARowOfZerosIsZero) {
  const View x = Upload(1, 4, {0, 0, 0, 0});
  const View y = Fresh(1, 4);
  device().RmsNorm(x, Upload(1, 4, {1, 1, 1, 1}), {.eps = 1e-6}, y, Fresh(1, 1));
  EXPECT_EQ(Download(y), (std::vector<float>{0, 0, 0, 0}));
}

struct RotateCase {
  int64_t width, head_dim;
  bool are_interleaved = false;
};

// Pairs as complex numbers: e^(i angle) times them.
TEST_P(LlamaOps, RotateTurnsPairsOfEachHeadByTheAnglesOfTheirPosition) {
  constexpr int64_t kSeqLen = 5;
  constexpr int64_t kHeads = 3;
  constexpr RotateCase kRotations[] = {
      {2, 2},       {6, 6},         {34, 34},       {2, 6},         {32, 64},      {2, 2, true},
      {6, 6, true}, {10, 16, true}, {34, 34, true}, {32, 64, true}, {64, 64, true}};
  for (const RotateCase& c : kRotations) {
    SCOPED_TRACE(std::to_string(c.width) + " of " + std::to_string(c.head_dim));
    const int64_t dim = c.width;
    const int64_t half = dim / 2;
    std::vector<float> table(static_cast<size_t>(kSeqLen * dim));
    const auto angle = [&](int64_t t, int64_t i) {
      return static_cast<double>(t) / (1.0 + static_cast<double>(i));
    };
    for (int64_t t = 0; t < kSeqLen; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        table[static_cast<size_t>(t * dim + i)] = static_cast<float>(std::cos(angle(t, i)));
        table[static_cast<size_t>(t * dim + half + i)] = static_cast<float>(std::sin(angle(t, i)));
      }
    }
    const int64_t rows = 2 * kSeqLen;  // two sequences
    const std::vector<float> x = Normal(rows * kHeads * c.head_dim, 1);
    Doubles expected = ToDoubles(x);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const int64_t head = (row * kHeads + h) * c.head_dim;
          const auto at = static_cast<size_t>(head + (c.are_interleaved ? 2 * i : i));
          const auto pair = at + static_cast<size_t>(c.are_interleaved ? 1 : half);
          const double a = angle(row % kSeqLen, i);
          const double real = static_cast<double>(x[at]);
          const double imaginary = static_cast<double>(x[pair]);
          expected[at] = real * std::cos(a) - imaginary * std::sin(a);
          expected[pair] = real * std::sin(a) + imaginary * std::cos(a);
        }
      }
    }
    const View table_view = Upload(kSeqLen, dim, table);
    const View turned = Upload(rows, kHeads * c.head_dim, x);
    const RotatedHeads heads = {c.head_dim, c.are_interleaved};
    device().Rotate(table_view, Turn::kForth, heads, turned);
    EXPECT_LT(RelativeError(Download(turned), expected), 1e-7);
    // A turn is orthogonal: its transpose, which is its gradient, undoes it.
    device().Rotate(table_view, Turn::kBack, heads, turned);
    EXPECT_LT(RelativeError(Download(turned), ToDoubles(x)), 2e-7);
  }
}

TEST_P(LlamaOps, RotateRefusesATableThatDoesNotFit) {
  const View x = Upload(4, 6, std::vector<float>(24, 1.0F));
  device().Rotate(Upload(3, 2, std::vector<float>(6)), Turn::kForth, {},
                  x);  // 4 rows are no 3 each
  EXPECT_FALSE(device().Synchronize().ok());
  device().Rotate(Upload(4, 4, std::vector<float>(16)), Turn::kForth, {},
                  x);  // 6 are no heads of 4
  EXPECT_FALSE(device().Synchronize().ok());
  // More than a head.
  device().Rotate(Upload(4, 4, std::vector<float>(16)), Turn::kForth, {.head_dim = 3}, x);
  EXPECT_FALSE(device().Synchronize().ok());
  EXPECT_EQ(Download(x), std::vector<float>(24, 1.0F));
}

TEST_P(LlamaOps, SquaredReluIsZeroBelowZeroAndPassesNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const View x = Upload(1, 5, {-3, 0, 0.5, 4, nan});
  const View y = Fresh(1, 5);
  device().Activate(PlainActivation::kSquaredRelu, x, y);
  const std::vector<float> value = Download(y);
  EXPECT_EQ((std::vector<float>{value.begin(), value.begin() + 4}),
            (std::vector<float>{0, 0, 0.25, 16}));
  EXPECT_TRUE(std::isnan(value[4]));
  const View dx = Upload(1, 5, {2, 3, 5, 7, 1});
  device().ActivateGradient(PlainActivation::kSquaredRelu, dx, x, dx);
  const std::vector<float> slope = Download(dx);
  EXPECT_EQ((std::vector<float>{slope.begin(), slope.begin() + 4}),
            (std::vector<float>{0, 0, 5, 56}));
  EXPECT_TRUE(std::isnan(slope[4]));
}

TEST_P(LlamaOps, ErfGeluAgreesAndItsGradientIsTheDerivative) {
  std::vector<float> x;
  for (float v = -12; v <= 12; v += 0.0137F) x.push_back(v);
  const int64_t count = std::ssize(x);
  const View y = Fresh(1, count), dx = Upload(1, count, std::vector<float>(x.size(), 1.0F));
  device().Activate(PlainActivation::kErfGelu, Upload(1, count, x), y);
  device().ActivateGradient(PlainActivation::kErfGelu, dx, Upload(1, count, x), dx);
  const auto value = [](double v) { return v * std::erfc(-v / std::numbers::sqrt2) / 2; };
  Doubles values, slopes;
  for (const float each : x) {
    const auto v = static_cast<double>(each);
    values.push_back(value(v));
    slopes.push_back(std::erfc(-v / std::numbers::sqrt2) / 2 +
                     v * std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi));
  }
  EXPECT_LT(RelativeError(Download(y), values), 2e-7);
  EXPECT_LT(RelativeError(Download(dx), slopes), 2e-7);
  const float infinity = std::numeric_limits<float>::infinity();
  const View ends = Upload(1, 4, {-infinity, 0, infinity, std::nanf("")});
  const View at_ends = Upload(1, 4, {1, 1, 1, 1});
  device().ActivateGradient(PlainActivation::kErfGelu, at_ends, ends, at_ends);
  const std::vector<float> slope = Download(at_ends);
  EXPECT_EQ((std::vector<float>{slope.begin(), slope.begin() + 3}),
            (std::vector<float>{0, 0.5, 1}));
  EXPECT_TRUE(std::isnan(slope[3]));
}

double FunctionOf(Gate f, double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(f == Gate::kGelu ? -2 * u : -x));
}

void LlamaOps::ExpectGluAgrees(Gate f) {
  std::vector<float> gate;
  for (float v = -12; v <= 12; v += 0.0137F) gate.push_back(v);
  const int64_t count = std::ssize(gate);
  const std::vector<float> up = Normal(count, 1);
  const std::vector<float> dy = Normal(count, 2);
  const View gate_view = Upload(1, count, gate);
  const View up_view = Upload(1, count, up);
  const View y = Fresh(1, count);
  device().Glu(f, gate_view, up_view, y);
  const View dgate = Fresh(1, count);
  const View dup = Upload(1, count, dy);  // written over dy
  device().GluGradient(f, dup, gate_view, up_view, dgate, dup);
  const std::vector<float> actual = Download(y);
  Doubles expected_dgate(gate.size());
  Doubles expected_dup(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = static_cast<double>(gate[i]);
    const double u = static_cast<double>(up[i]);
    const double expected = FunctionOf(f, g) * u;
    EXPECT_NEAR(static_cast<double>(actual[i]), expected,
                1e-12 + (f == Gate::kGelu ? 4e-6 : 5e-7) * std::abs(expected))
        << g;
    expected_dgate[i] =
        static_cast<double>(dy[i]) * u * (FunctionOf(f, g + 1e-5) - FunctionOf(f, g - 1e-5)) / 2e-5;
    expected_dup[i] = static_cast<double>(dy[i]) * FunctionOf(f, g);
  }
  EXPECT_LT(RelativeError(Download(dgate), expected_dgate), 2e-7);
  EXPECT_LT(RelativeError(Download(dup), expected_dup), 2e-7);
}

TEST_P(LlamaOps, GluAgreesAndItsGradientIsTheDerivative) {
  for (const Gate f : {Gate::kSilu, Gate::kGelu}) {
    SCOPED_TRACE(f == Gate::kSilu ? "silu" : "gelu");
    ExpectGluAgrees(f);
  }
}

TEST_P(LlamaOps, SwiGluOfLargeGatesIsTheProductOrZeroAndPassesNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const View gate = Upload(1, 5, {50, -200, 1e6, -1e6, nan});
  const View up = Upload(1, 5, {2, 2, 2, 2, 2});
  const View y = Fresh(1, 5);
  device().Glu(Gate::kSilu, gate, up, y);
  const std::vector<float> value = Download(y);
  EXPECT_EQ((std::vector<float>{value.begin(), value.begin() + 4}),
            (std::vector<float>{100, 0, 2e6, 0}));
  EXPECT_TRUE(std::isnan(value[4]));
  const View dgate = Fresh(1, 5);
  const View dup = Fresh(1, 5);
  device().GluGradient(Gate::kSilu, Upload(1, 5, {1, 1, 1, 1, 1}), gate, up, dgate, dup);
  const std::vector<float> slope = Download(dgate);
  EXPECT_FLOAT_EQ(slope[0], 2);
  EXPECT_NEAR(static_cast<double>(slope[1]), 0, 1e-30);
  EXPECT_FLOAT_EQ(slope[2], 2);
  EXPECT_NEAR(static_cast<double>(slope[3]), 0, 1e-27);
  EXPECT_TRUE(std::isnan(slope[4]));
  EXPECT_TRUE(std::isnan(Download(dup)[4]));
}

}  // namespace
}  // namespace weft
