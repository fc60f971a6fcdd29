// Norms of many rows of every length: devices walk them in several ways and share them out to as
// many threads as a row is worth. What they compute is proven where rows are few (device_test.cc,
// llama_ops_test.cc); here the formulas are taken as given, in double.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"

namespace weft {
namespace {

constexpr double kEps = 1e-5;

struct NormCase {
  int64_t rows, cols;
  bool has_mean;
  double offset = 0;  // of weights
};

// In packs of 16 bytes: rows of a warp, of two, of four, of a block; longer ones; rows that do not
// consist of packs. So many of them that a thread has several in turn, of the first so many that
// their sums are cut.
std::vector<NormCase> NormCases() {
  return {{34000, 4, true},     {2130, 132, true},     {1060, 516, true}, {540, 1028, true},
          {270, 2052, true},    {3, 4096, true},       {9, 4100, true},   {40, 37, true},
          {2130, 12, false},    {540, 1028, false},    {9, 4100, false},  {40, 37, false},
          {540, 1028, true, 1}, {540, 1028, false, 1}, {40, 37, true, 1}, {9, 4100, false, 1}};
}

class NormOps : public DeviceTest {
 protected:
  struct Results {
    Doubles y, dx, dweight, dbias;
  };

  void Fill(const NormCase& c) {
    x_ = Normal(c.rows * c.cols, 1);
    for (float& value : x_) value += 3;
    weight_ = Normal(c.cols, 2);
    bias_ = Normal(c.cols, 3);
    dy_ = Normal(c.rows * c.cols, 4);
    dx_ = Normal(c.rows * c.cols, 5);
  }

  Results Expected(const NormCase& c) const {
    Results r = {.y = Doubles(x_.size()),
                 .dx = ToDoubles(dx_),
                 .dweight = ToDoubles(bias_),
                 .dbias = ToDoubles(weight_)};
    const auto cols = static_cast<size_t>(c.cols);
    const auto width = static_cast<double>(c.cols);
    Doubles normal(cols), g(cols);
    for (size_t first = 0; first < x_.size(); first += cols) {
      double mean = 0, squares = 0, sum_g = 0, sum_gn = 0;
      for (size_t i = 0; i < cols && c.has_mean; ++i) mean += double{x_[first + i]} / width;
      for (size_t i = 0; i < cols; ++i) squares += std::pow(double{x_[first + i]} - mean, 2);
      const double rstd = 1 / std::sqrt(squares / width + kEps);
      for (size_t i = 0; i < cols; ++i) {
        const double dy = double{dy_[first + i]};
        normal[i] = (double{x_[first + i]} - mean) * rstd;
        r.y[first + i] =
            normal[i] * (c.offset + double{weight_[i]}) + (c.has_mean ? double{bias_[i]} : 0);
        r.dweight[i] += dy * normal[i];
        r.dbias[i] += dy;
        g[i] = dy * (c.offset + double{weight_[i]});
        sum_g += c.has_mean ? g[i] : 0;
        sum_gn += g[i] * normal[i];
      }
      for (size_t i = 0; i < cols; ++i) {
        r.dx[first + i] += rstd * (g[i] - sum_g / width - normal[i] * sum_gn / width);
      }
    }
    return r;
  }

  std::vector<float> x_, weight_, bias_, dy_, dx_;
};
INSTANTIATE_TEST_SUITE_P(Backends, NormOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

TEST_P(NormOps, HoldForManyRowsOfEveryLength) {
  for (const NormCase& c : NormCases()) {
    SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.cols));
    const NormConstants constants = {.eps = kEps, .offset = c.offset};
    Fill(c);
    const View x = Upload(c.rows, c.cols, x_);
    const View weight = Upload(1, c.cols, weight_);
    const View bias = Upload(1, c.cols, bias_);
    const View dy = Upload(c.rows, c.cols, dy_);
    const View dx = Upload(c.rows, c.cols, dx_);
    const View dweight = Upload(1, c.cols, bias_);
    const View dbias = Upload(1, c.cols, weight_);
    const View y = Fresh(c.rows, c.cols);
    const View mean = Fresh(c.rows, 1);
    const View rstd = Fresh(c.rows, 1);
    if (c.has_mean) {
      device().LayerNorm(x, weight, bias, constants, y, mean, rstd);
      device().LayerNormGradient(dy, x, weight, constants, mean, rstd, dx, dweight, dbias);
    } else {
      device().RmsNorm(x, weight, constants, y, rstd);
      device().RmsNormGradient(dy, x, weight, constants, rstd, dx, dweight);
    }
    const Results expected = Expected(c);
    EXPECT_LT(RelativeError(Download(y), expected.y), 3e-7);
    EXPECT_LT(RelativeError(Download(dx), expected.dx), 1e-6);
    EXPECT_LT(RelativeError(Download(dweight), expected.dweight), 3e-7);
    if (c.has_mean) {
      EXPECT_LT(RelativeError(Download(dbias), expected.dbias), 3e-7);
    }
  }
}

// Statistics and gradients are those of the row, not of what another row of the same block has.
TEST_P(NormOps, GiveTheSameBitsForARowWhereverItStands) {
  constexpr int64_t kCols = 516;
  constexpr int64_t kRows = 1060;
  const std::vector<float> row = Normal(kCols, 1);
  std::vector<float> x;
  for (int64_t i = 0; i < kRows; ++i) x.insert(x.end(), row.begin(), row.end());
  const View x_view = Upload(kRows, kCols, x);
  const View weight = Upload(1, kCols, Normal(kCols, 2));
  const View y = Fresh(kRows, kCols);
  const View mean = Fresh(kRows, 1);
  const View rstd = Fresh(kRows, 1);
  const View dx = Upload(kRows, kCols, x);
  const View sums = Upload(1, kCols, row);
  device().LayerNorm(x_view, weight, weight, {.eps = kEps}, y, mean, rstd);
  device().LayerNormGradient(y, x_view, weight, {}, mean, rstd, dx, sums, Upload(1, kCols, row));
  for (const View& result : {y, dx, mean, rstd}) {
    const std::vector<float> got = Download(result);
    const auto cols = static_cast<size_t>(result.cols);
    for (size_t i = cols; i < got.size(); ++i) ASSERT_EQ(got[i], got[i % cols]) << i;
  }
}

}  // namespace
}  // namespace weft
