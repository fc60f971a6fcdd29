// Updates of parameters against their definitions in double; AdamW, Lion and SGD are in
// device_test.cc.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/adafactor_steps.h"
#include "worker/backend/quantisation.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

using OptimizerOps = DeviceTest;

TEST_P(OptimizerOps, AdagradFollowsPyTorchOverFiveSteps) {
  constexpr int64_t kCount = 1003;
  const struct {
    AdagradParameters adagrad;
    double scale;
  } cases[] = {{{.lr = 0.1, .eps = 1e-10}, 1},
               {{.lr = 0.01, .eps = 1e-3, .weight_decay = 0.05}, 0.25}};
  for (const auto& [parameters, scale] : cases) {
    AdagradParameters adagrad = parameters;
    if (scale != 1) adagrad.gradient_scale = UploadTotal(scale);
    const std::vector<float> start = Normal(kCount, 99);
    const View param = Upload(1, kCount, start);
    const View sum = Upload(1, kCount, std::vector<float>(kCount));
    Doubles p = ToDoubles(start);
    Doubles squares(kCount);
    for (uint32_t step = 1; step <= 5; ++step) {
      const std::vector<float> gradient = Normal(kCount, step, 0.1F);
      device().updates().Adagrad(adagrad, Upload(1, kCount, gradient), param, sum);
      for (size_t i = 0; i < p.size(); ++i) {
        const double g = scale * static_cast<double>(gradient[i]) + adagrad.weight_decay * p[i];
        squares[i] += g * g;
        p[i] -= adagrad.lr * g / (std::sqrt(squares[i]) + adagrad.eps);
      }
    }
    EXPECT_LT(RelativeError(Download(param), p), 5e-7);
    EXPECT_LT(RelativeError(Download(sum), squares), 5e-7);
  }
}

// The first step is as long as the rate, whatever the gradient; without one nothing moves.
TEST_P(OptimizerOps, AdagradBeginsWithTheRate) {
  const View param = Upload(1, 3, {1, 2, -4});
  const View sum = Upload(1, 3, {0, 0, 0});
  device().updates().Adagrad({.lr = 0.5, .eps = 1e-10}, Upload(1, 3, {2, 0, -0.5}), param, sum);
  EXPECT_EQ(Download(param), (std::vector<float>{0.5, 2, -3.5}));
  EXPECT_EQ(Download(sum), (std::vector<float>{4, 0, 0.25}));
}

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
      device().updates().SgdMomentum(sgd, Upload(1, kCount, gradient), param, momentum);
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

// Lengths of arrays that are updated together: more than a table holds, some of them in several
// chunks, some empty, most no whole packs or not where packs begin.
std::vector<int64_t> MixedLengths(int64_t arrays) {
  std::vector<int64_t> lengths = {100000, 768, 1, 768, 1031, 0, 4096, 2048};
  while (std::ssize(lengths) < arrays) lengths.push_back(lengths.size() % 3 == 0 ? 257 : 768);
  return lengths;
}

int64_t Total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

// Parts of a row, one after the other.
std::vector<View> PartsOf(View row, const std::vector<int64_t>& lengths) {
  std::vector<View> parts;
  char* at = static_cast<char*>(row.data);
  for (const int64_t length : lengths) {
    parts.push_back({at, 1, length, row.dtype});
    at += parts.back().bytes();
  }
  return parts;
}

TEST_P(OptimizerOps, SquaresOfManyArraysAreAddedAsThoseOfEach) {
  for (const int64_t arrays : {8, 500}) {
    const std::vector<int64_t> lengths = MixedLengths(arrays);
    const std::vector<float> values = Normal(Total(lengths), 5, 100);
    const std::vector<View> parts = PartsOf(Upload(1, std::ssize(values), values), lengths);
    long double expected = 1e7;
    for (const float x : values) expected += static_cast<long double>(x) * x;
    const View together = UploadTotal(1e7);
    device().AddSumOfSquares(parts.data(), std::ssize(parts), together);
    EXPECT_NEAR(static_cast<double>(DownloadTotal(together) / expected), 1, 1e-13) << arrays;
    const View again = UploadTotal(1e7);
    device().AddSumOfSquares(parts.data(), std::ssize(parts), again);
    EXPECT_EQ(DownloadTotal(again), DownloadTotal(together));
    if (GetParam() != "cpu") continue;
    const View in_turn = UploadTotal(1e7);
    for (const View& part : parts) device().AddSumOfSquares(&part, 1, in_turn);
    EXPECT_EQ(DownloadTotal(in_turn), DownloadTotal(together));
  }
  const View nothing = UploadTotal(3);
  device().AddSumOfSquares(nullptr, 0, nothing);
  EXPECT_EQ(DownloadTotal(nothing), 3);
}

class ManySegments : public DeviceTest {
 protected:
  // Over so many segments, of which every third has no weight; kF32: none has.
  void ExpectAdamwOfEach(int64_t count, DType weight_type);
};

void ManySegments::ExpectAdamwOfEach(int64_t count, DType weight_type) {
  constexpr double kScale = 0.5;
  constexpr float kUntouched = 8;
  const std::vector<int64_t> lengths = MixedLengths(count);
  const int64_t total = Total(lengths);
  const auto size = static_cast<size_t>(total);
  const std::vector<float> g = Normal(total, 1, 0.01F);
  const std::vector<float> start = Normal(total, 2);
  const View param = Upload(1, total, start);
  const View exp_avg = Upload(1, total, std::vector<float>(size));
  const View exp_avg_sq = Upload(1, total, std::vector<float>(size));
  const View weight = As(weight_type, Upload(1, total, std::vector<float>(size, kUntouched)));
  const std::vector<View> gradients = PartsOf(Upload(1, total, g), lengths);
  const std::vector<View> params = PartsOf(param, lengths);
  const std::vector<View> means = PartsOf(exp_avg, lengths);
  const std::vector<View> squares = PartsOf(exp_avg_sq, lengths);
  const std::vector<View> weights = PartsOf(weight, lengths);
  const auto has_weight = [&](size_t i) { return weight_type != DType::kF32 && i % 3 != 2; };
  const auto decay_of = [](size_t i) { return i % 2 == 0 ? 0.1 : 0.0; };
  std::vector<AdamwSegment> segments;
  for (size_t i = 0; i < lengths.size(); ++i) {
    segments.push_back({gradients[i], params[i], means[i], squares[i],
                        has_weight(i) ? weights[i] : View(), decay_of(i)});
  }
  const AdamwParameters adamw = {.lr = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .gradient_scale = UploadTotal(kScale),
                                 .step = 1};
  device().updates().Adamw(adamw, segments.data(), std::ssize(segments));
  const std::vector<float> p = Download(param), rounded = Download(As(weight_type, param));
  const std::vector<float> m = Download(exp_avg), v = Download(exp_avg_sq), w = Download(weight);
  size_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (const size_t end = at + static_cast<size_t>(lengths[i]); at < end; ++at) {
      const double x = kScale * static_cast<double>(g[at]);
      const double before = static_cast<double>(start[at]);
      // The first step's moments are those of x alone once they are corrected.
      const double after = before - 0.1 * (x / (std::abs(x) + 1e-8) + decay_of(i) * before);
      ASSERT_NEAR(static_cast<double>(p[at]), after, 1e-6) << "segment " << i;
      ASSERT_NEAR(static_cast<double>(m[at]), 0.1 * x, 1e-9) << "segment " << i;
      ASSERT_NEAR(static_cast<double>(v[at]), 0.05 * x * x, 1e-10) << "segment " << i;
      ASSERT_EQ(w[at], has_weight(i) ? rounded[at] : kUntouched) << "segment " << i;
    }
  }
}

TEST_P(ManySegments, AdamwIsThatOfEachAndRoundsItsWeight) {
  for (const int64_t count : {8, 150}) {
    for (const DType weight_type : {DType::kF32, DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(testing::Message()
                   << count << " segments, weights of type " << static_cast<int>(weight_type));
      ExpectAdamwOfEach(count, weight_type);
    }
  }
}

TEST_P(ManySegments, AdamwRefusesAllIfOneDoesNotFit) {
  const std::vector<float> ones(8, 1);
  const View bf16 = As(DType::kBf16, Upload(1, 8, ones));
  const View f16 = As(DType::kF16, Upload(1, 8, ones));
  const View f32 = Upload(1, 8, ones);
  const View shorter = Upload(1, 7, std::vector<float>(7, 1));
  const AdamwParameters adamw = {.lr = 1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .step = 1};
  const View gradient = f32;
  const View param = Upload(1, 8, ones);
  const AdamwSegment fits = {gradient, param, Upload(1, 8, ones), Upload(1, 8, ones), bf16, 0};
  const auto with = [&](View AdamwSegment::*member, View view) {
    AdamwSegment segment = {
        gradient, Upload(1, 8, ones), Upload(1, 8, ones), Upload(1, 8, ones), bf16, 0};
    segment.*member = view;
    return segment;
  };
  for (const AdamwSegment& unfit :
       {with(&AdamwSegment::weight, f16), with(&AdamwSegment::weight, f32),
        with(&AdamwSegment::gradient, shorter), with(&AdamwSegment::exp_avg, bf16),
        with(&AdamwSegment::exp_avg_sq, View())}) {
    const AdamwSegment segments[] = {fits, unfit};
    device().updates().Adamw(adamw, segments, 2);
    EXPECT_FALSE(device().Synchronize().ok());
    EXPECT_EQ(Download(param), ones);
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
  constexpr double kDecay = 0.1;
  AdamwParameters adamw = {
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .gradient_scale = UploadTotal(kScale)};
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
    device().updates().QuantisedAdamw(adamw, kDecay, Upload(1, count, gradient), param, mean,
                                      square);
    const auto step = static_cast<double>(adamw.step);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = kScale * static_cast<double>(gradient[i]);
      m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
      v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
      p[i] -= adamw.lr * (m[i] / (1 - std::pow(adamw.beta1, step)) /
                              (std::sqrt(v[i] / (1 - std::pow(adamw.beta2, step))) + adamw.eps) +
                          kDecay * p[i]);
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
  const AdamwParameters adamw = {.lr = 1, .gradient_scale = scale, .step = 1};
  const View weight = As(DType::kBf16, Upload(1, kCount, std::vector<float>(kCount, 8)));
  const AdamwSegment segment = {gradient, param, mean, square, weight, 1};
  device().updates().Adamw(adamw, &segment, 1);
  expect_unchanged("Adamw");
  EXPECT_EQ(Download(weight), std::vector<float>(kCount, 8));
  device().updates().Lion({.lr = 1, .weight_decay = 1, .gradient_scale = scale}, gradient, param,
                          mean);
  expect_unchanged("Lion");
  device().updates().Sgd(1, 1, scale, gradient, param);
  expect_unchanged("Sgd");
  device().updates().SgdMomentum({.lr = 1, .gradient_scale = scale}, gradient, param, mean);
  expect_unchanged("SgdMomentum");
  device().updates().Adagrad({.lr = 1, .gradient_scale = scale}, gradient, param, square);
  expect_unchanged("Adagrad");
  // Codes lie in `mean`, scales in `square`.
  const auto quantised = [&](int64_t at) -> QuantisedView {
    const int64_t blocks = (kCount + kQuantisationBlock - 1) / kQuantisationBlock;
    return {{static_cast<float*>(mean.data) + at * kCols, 1, kCount, DType::kU8},
            {static_cast<float*>(square.data) + at * kCols, 1, blocks, DType::kF32}};
  };
  device().updates().QuantisedAdamw(adamw, 1, gradient, param, quantised(0), quantised(2));
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
  device().adafactor().Squares(scale, gradient, 0, sums);
  device().adafactor().Moments(0.5, scale, sums, factors);
  device().adafactor().Norms(adafactor, gradient, param, 0, factors, norms);
  device().adafactor().Update(adafactor, gradient, param, 0, factors, norms);
  expect_unchanged("Adafactor");
  EXPECT_EQ(Download(row_mean), std::vector<float>{5});
  EXPECT_EQ(Download(norms), (std::vector<float>{6, 7}));
}

// Checkpoints rely on this.
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

INSTANTIATE_TEST_SUITE_P(Backends, ManySegments, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });
INSTANTIATE_TEST_SUITE_P(Backends, QuantisedOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });
INSTANTIATE_TEST_SUITE_P(Backends, OptimizerOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace weft
