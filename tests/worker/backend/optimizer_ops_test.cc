// Updates of parameters against their definitions in double; AdamW, Lion and SGD are in
// device_test.cc.
#include <algorithm>
#include <cmath>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/quantisation.h"

namespace weft {
namespace {

using OptimizerOps = DeviceTest;

TEST_P(OptimizerOps, SgdMomentumFollowsPyTorchOverFiveSteps) {
  constexpr int64_t kCount = 1003;
  const struct {
    MomentumParameters sgd;
    double scale;
  } cases[] = {
      {{.lr = 0.1, .momentum = 0.9}, 1},
      {{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05}, 0.25},
      {{.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.05}, 1},
      {{.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05}, 0.5},
  };
  for (const auto& [parameters, scale] : cases) {
    MomentumParameters sgd = parameters;
    if (scale != 1) sgd.gradient_scale = UploadTotal(scale);
    const std::vector<float> start = Normal(kCount, 99);
    const View param = Upload(1, kCount, start);
    const View momentum = Upload(1, kCount, Normal(kCount, 98));  // of no meaning to the first
    Doubles p = ToDoubles(start);
    Doubles buffer(kCount);
    for (uint32_t step = 1; step <= 5; ++step) {
      sgd.first = step == 1;
      const std::vector<float> gradient = Normal(kCount, step);
      device().SgdMomentum(sgd, Upload(1, kCount, gradient), param, momentum);
      for (size_t i = 0; i < p.size(); ++i) {
        const double g = scale * static_cast<double>(gradient[i]) + sgd.weight_decay * p[i];
        buffer[i] = step == 1 ? g : sgd.momentum * buffer[i] + (1 - sgd.dampening) * g;
        p[i] -= sgd.lr * (sgd.nesterov ? g + sgd.momentum * buffer[i] : buffer[i]);
      }
    }
    EXPECT_LT(RelativeError(Download(param), p), 1e-6);
    EXPECT_LT(RelativeError(Download(momentum), buffer), 1e-6);
  }
}

class QuantisedOps : public DeviceTest {
 protected:
  void ExpectAdamwOnMomentsOfEightBits(int64_t count);

  QuantisedView UploadQuantised(QuantisedSign sign, const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const int64_t blocks = (count + kQuantisationBlock - 1) / kQuantisationBlock;
    std::vector<uint8_t> codes(values.size());
    std::vector<float> scales(static_cast<size_t>(blocks));
    Quantise(sign, values.data(), count, codes.data(), scales.data());
    const View memory = Fresh(1, (count + 3) / 4);
    const View view = {memory.data, 1, count, DType::kU8};
    device().CopyIn(view, codes.data());
    return {view, Upload(1, blocks, scales)};
  }
  std::vector<float> DownloadQuantised(QuantisedSign sign, const QuantisedView& view) {
    std::vector<uint8_t> codes(static_cast<size_t>(view.codes.elements()));
    device().CopyOut(codes.data(), view.codes);
    const std::vector<float> scales = Download(view.scales);
    std::vector<float> values(codes.size());
    Dequantise(sign, codes.data(), scales.data(), view.codes.elements(), values.data());
    return values;
  }
};

// A plain search for the nearest number of a map written from the paper.
Doubles InEightBits(QuantisedSign sign, Doubles x) {
  Doubles map = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (sign == QuantisedSign::kAny ? 64 : 128) >> decade;
    for (int i = 0; i < parts; ++i) {
      const double low = 0.1 + 0.9 * i / parts;
      const double high = 0.1 + 0.9 * (i + 1) / parts;
      map.push_back((low + high) / 2 * std::pow(10, -decade));
      if (sign == QuantisedSign::kAny) map.push_back(-map.back());
    }
  }
  if (sign == QuantisedSign::kAny) *std::min_element(map.begin(), map.end()) = -1;
  EXPECT_EQ(map.size(), 256u);
  for (size_t begin = 0; begin < x.size(); begin += 256) {
    const auto first = x.begin() + static_cast<int64_t>(begin);
    const auto last = x.begin() + static_cast<int64_t>(std::min(x.size(), begin + 256));
    double scale = 0;
    for (auto at = first; at != last; ++at) scale = std::max(scale, std::abs(*at));
    for (auto at = first; at != last; ++at) {
      const double share = *at / scale;
      double nearest = 5;
      for (const double number : map) {
        if (sign == QuantisedSign::kNone && number == 0 && share > 0) continue;
        if (std::abs(number - share) < std::abs(nearest - share)) nearest = number;
      }
      *at = nearest * scale;
    }
  }
  return x;
}

// Against AdamW in double whose moments go through InEightBits.
void QuantisedOps::ExpectAdamwOnMomentsOfEightBits(int64_t count) {
  constexpr double kScale = 0.5;
  AdamwParameters adamw = {.lr = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .gradient_scale = UploadTotal(kScale)};
  const std::vector<float> start = Normal(count, 99);
  const View param = Upload(1, count, start);
  const std::vector<float> zeros(static_cast<size_t>(count), 0.0F);
  const QuantisedView mean = UploadQuantised(QuantisedSign::kAny, zeros);
  const QuantisedView square = UploadQuantised(QuantisedSign::kNone, zeros);
  Doubles p = ToDoubles(start);
  Doubles m(static_cast<size_t>(count));
  Doubles v(static_cast<size_t>(count));
  for (adamw.step = 1; adamw.step <= 4; ++adamw.step) {
    std::vector<float> gradient = Normal(count, static_cast<uint32_t>(adamw.step), 0.01F);
    for (size_t i = 0; i < 40; ++i) gradient[i] *= 1e-6F;  // small beside their block's largest
    device().QuantisedAdamw(adamw, Upload(1, count, gradient), param, mean, square);
    const auto step = static_cast<double>(adamw.step);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = kScale * static_cast<double>(gradient[i]);
      m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
      v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
      p[i] -= adamw.lr * (m[i] / (1 - std::pow(adamw.beta1, step)) /
                              (std::sqrt(v[i] / (1 - std::pow(adamw.beta2, step))) + adamw.eps) +
                          adamw.weight_decay * p[i]);
    }
    m = InEightBits(QuantisedSign::kAny, m);
    v = InEightBits(QuantisedSign::kNone, v);
  }
  // A share that lies between two numbers, up to rounding, may go either way: few do.
  EXPECT_LT(RelativeError(Download(param), p), 1e-5);
  EXPECT_LT(RelativeError(DownloadQuantised(QuantisedSign::kAny, mean), m), 1e-3);
  EXPECT_LT(RelativeError(DownloadQuantised(QuantisedSign::kNone, square), v), 1e-3);
}

TEST_P(QuantisedOps, QuantisedAdamwIsAdamwOnMomentsOfEightBits) {
  // Whole accesses of 16 bytes, then not; in CUDA more blocks than warps of one block of threads.
  for (const int64_t count : {11 * kQuantisationBlock + 76, 3 * kQuantisationBlock + 77}) {
    SCOPED_TRACE(count);
    ExpectAdamwOnMomentsOfEightBits(count);
  }
}

// Totals on the left, on the right what gradients are multiplied by.
TEST_P(OptimizerOps, GradientScaleClipsTheNormAndTakesTheLossScaleBack) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    ClipParameters clip;
    double loss, squares, scale;
  } cases[] = {
      {{}, 7, 1e6, 1},
      {{.loss_scale = 1024}, 7, 1e6, 1.0 / 1024},
      {{.max_norm = 2}, 7, 1, 1},
      {{.max_norm = 2}, 7, 16, 2 / (4 + 1e-6)},
      {{.max_norm = 2, .loss_scale = 8}, 7, 1024, 2 / (4 + 1e-6) / 8},
      {{.max_norm = 2}, 7, 0, 1},
      {{}, kInfinity, 1, nan},
      {{}, -kInfinity, 1, nan},
      {{}, nan, 1, nan},
      {{.max_norm = 2}, 7, kInfinity, nan},
      {{.max_norm = 2}, 7, nan, nan},
      {{}, nan, nan, nan},
  };
  for (const auto& c : cases) {
    const View scale = UploadTotal(-1);
    device().GradientScale(c.clip, UploadTotal(c.loss), UploadTotal(c.squares), scale);
    const double actual = DownloadTotal(scale);
    SCOPED_TRACE(testing::Message() << "loss " << c.loss << ", squares " << c.squares);
    if (std::isnan(c.scale)) {
      EXPECT_TRUE(std::isnan(actual)) << actual;
    } else {
      EXPECT_EQ(actual, c.scale);
    }
  }
}

// Whatever the gradients, of which some are not finite: that is why the scale is not a number.
TEST_P(OptimizerOps, AnUpdateWhoseScaleIsNotANumberChangesNothing) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 103;  // no whole pack
  constexpr int64_t kCount = kRows * kCols;
  const View scale = UploadTotal(std::numeric_limits<double>::quiet_NaN());
  std::vector<float> gradients = Normal(kCount, 1);
  gradients[7] = std::numeric_limits<float>::quiet_NaN();
  const View gradient = Upload(1, kCount, gradients);
  const std::vector<float> start[] = {Normal(kCount, 2), Normal(kCount, 3), Normal(kCount, 4)};
  const View param = Upload(1, kCount, start[0]);
  const View mean = Upload(1, kCount, start[1]);
  const View square = Upload(1, kCount, start[2]);
  const auto expect_unchanged = [&](const char* update) {
    SCOPED_TRACE(update);
    EXPECT_EQ(Download(param), start[0]);
    EXPECT_EQ(Download(mean), start[1]);
    EXPECT_EQ(Download(square), start[2]);
  };
  const AdamwParameters adamw = {.lr = 1, .weight_decay = 1, .gradient_scale = scale, .step = 1};
  device().Adamw(adamw, gradient, param, mean, square);
  expect_unchanged("Adamw");
  device().Lion({.lr = 1, .weight_decay = 1, .gradient_scale = scale}, gradient, param, mean);
  expect_unchanged("Lion");
  device().Sgd(1, 1, scale, gradient, param);
  expect_unchanged("Sgd");
  device().SgdMomentum({.lr = 1, .gradient_scale = scale}, gradient, param, mean);
  expect_unchanged("SgdMomentum");
  // Codes lie in `mean`, scales in `square`.
  const auto quantised = [&](int64_t at) -> QuantisedView {
    const int64_t blocks = (kCount + kQuantisationBlock - 1) / kQuantisationBlock;
    return {{static_cast<float*>(mean.data) + at * kCols, 1, kCount, DType::kU8},
            {static_cast<float*>(square.data) + at * kCols, 1, blocks, DType::kF32}};
  };
  device().QuantisedAdamw(adamw, gradient, param, quantised(0), quantised(2));
  expect_unchanged("QuantisedAdamw");
  const View row_mean = Upload(1, 1, {5});
  const View norms = Upload(1, 2, {6, 7});
  const auto part = [](View x, int64_t first, int64_t count) {
    return View{static_cast<float*>(x.data) + first, 1, count, DType::kF32};
  };
  const FactoredView factors = {part(mean, 0, kRows), part(mean, kRows, kCols), row_mean};
  const FactoredView sums = {part(square, 0, kRows), part(square, kRows, kCols)};
  const AdafactorParameters adafactor = {
      .lr = 1, .weight_decay = 1, .gradient_scale = scale, .elements = kCount};
  device().AdafactorSquares(scale, gradient, 0, sums);
  device().AdafactorMoments(0.5, scale, sums, factors);
  device().AdafactorNorms(adafactor, gradient, param, 0, factors, norms);
  device().AdafactorUpdate(adafactor, gradient, param, 0, factors, norms);
  expect_unchanged("Adafactor");
  EXPECT_EQ(Download(row_mean), std::vector<float>{5});
  EXPECT_EQ(Download(norms), (std::vector<float>{6, 7}));
}

// What checkpoints rely on.
TEST(Quantisation, KeepsTheBitsOfWhatWasQuantisedBefore) {
  constexpr int64_t kCount = 5 * kQuantisationBlock + 3;
  for (const QuantisedSign sign : {QuantisedSign::kAny, QuantisedSign::kNone}) {
    std::vector<float> values = Normal(kCount, 3);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] *= std::pow(10.0F, static_cast<float>(i % 9) - 12.0F);
      if (sign == QuantisedSign::kNone) values[i] *= values[i];
    }
    for (int64_t i = 0; i < kQuantisationBlock; ++i) values[static_cast<size_t>(i)] = 0;
    std::vector<uint8_t> codes(values.size());
    std::vector<float> scales(6);
    Quantise(sign, values.data(), kCount, codes.data(), scales.data());
    std::vector<float> wide(values.size());
    Dequantise(sign, codes.data(), scales.data(), kCount, wide.data());
    std::vector<uint8_t> codes_again(values.size());
    std::vector<float> scales_again(6);
    Quantise(sign, wide.data(), kCount, codes_again.data(), scales_again.data());
    EXPECT_EQ(codes_again, codes);
    EXPECT_EQ(scales_again, scales);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(sign == QuantisedSign::kAny || (wide[i] == 0) == (values[i] == 0)) << i;
      // Half the distance of two numbers: 0.9 / 64 at most, but half as much again below -1.
      const double scale = scales[i / kQuantisationBlock];
      EXPECT_LE(std::abs(wide[i] - values[i]), 0.76 * 0.9 / 64 * scale + 1e-30) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantisedOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });
INSTANTIATE_TEST_SUITE_P(Backends, OptimizerOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace weft
