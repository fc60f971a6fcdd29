// Softmax cross-entropy, whole and with its vocabulary cut over ranks.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 9;
constexpr int64_t kVocabulary = 53;

class CrossEntropy : public DeviceTest {
 protected:
  struct Result {
    double loss = 0;
    std::vector<float> gradient;  // [N, V]
  };

  // Computes as tp ranks do: each the range [cut[i], cut[i + 1]), with the reductions between the
  // calls.
  Result Run(const std::vector<float>& logits, const std::vector<int32_t>& targets,
             const std::vector<int64_t>& cut, const LossTerms& terms) {
    const View ids = UploadIds(targets);
    std::vector<View> parts;
    std::vector<float> highest(kTokens, -INFINITY);
    for (size_t p = 0; p + 1 < cut.size(); ++p) {
      std::vector<float> columns;
      for (int64_t row = 0; row < kTokens; ++row) {
        const auto first = logits.begin() + row * kVocabulary;
        columns.insert(columns.end(), first + cut[p], first + cut[p + 1]);
      }
      parts.push_back(Upload(kTokens, cut[p + 1] - cut[p], columns));
      const View row_max = Fresh(kTokens, 1);
      device().RowMax(parts.back(), row_max);
      const std::vector<float> local = Download(row_max);
      for (size_t i = 0; i < local.size(); ++i) highest[i] = std::max(highest[i], local[i]);
    }
    const View row_max = Upload(kTokens, 1, highest);
    std::vector<float> sums(kTokens);
    std::vector<float> target_logits(kTokens);
    for (size_t p = 0; p < parts.size(); ++p) {
      const View row_sum = Fresh(kTokens, 1);
      const View target_logit = Fresh(kTokens, 1);
      device().RowSumExp(parts[p], row_max, ids, cut[p], terms, row_sum, target_logit);
      const std::vector<float> local_sums = Download(row_sum);
      const std::vector<float> local_targets = Download(target_logit);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += local_sums[i];
        target_logits[i] += local_targets[i];
      }
    }
    const View row_sum = Upload(kTokens, 1, sums);
    const View total = UploadTotal(3);
    device().AddLossSum(row_max, row_sum, Upload(kTokens, 1, target_logits), terms, total);
    Result result = {.loss = DownloadTotal(total) - 3,
                     .gradient = std::vector<float>(kTokens * kVocabulary)};
    for (size_t p = 0; p < parts.size(); ++p) {
      device().SoftmaxGradient(row_max, row_sum, ids, cut[p], terms, parts[p]);
      const std::vector<float> local = Download(parts[p]);
      for (int64_t row = 0; row < kTokens; ++row) {
        std::copy_n(local.begin() + row * parts[p].cols, parts[p].cols,
                    result.gradient.begin() + row * kVocabulary + cut[p]);
      }
    }
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CrossEntropy, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

double LossOf(const Doubles& logits, const std::vector<int32_t>& targets) {
  double loss = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    const auto first = logits.begin() + static_cast<int64_t>(row) * kVocabulary;
    double total = 0;
    for (auto x = first; x != first + kVocabulary; ++x) total += std::exp(*x);
    loss += std::log(total) - first[targets[row]];
  }
  return loss;
}

std::vector<int32_t> Targets() {
  return {0, 52, 17, 18, 35, 36, 3, 3, 40};
}

TEST_P(CrossEntropy, AgreesAndItsGradientIsTheDerivative) {
  const std::vector<float> logits = Normal(kTokens * kVocabulary, 1, 3);
  const Result result = Run(logits, Targets(), {0, kVocabulary}, {.scale = 0.125});
  const Doubles logits64 = ToDoubles(logits);
  EXPECT_NEAR(result.loss / LossOf(logits64, Targets()), 1, 1e-7);
  Doubles expected =
      DifferenceQuotient([](const Doubles& x) { return LossOf(x, Targets()); }, logits64);
  for (double& value : expected) value *= 0.125;
  EXPECT_LT(RelativeError(result.gradient, expected), 3e-7);
}

TEST_P(CrossEntropy, IsTheSameForAnyCutOfTheVocabulary) {
  const std::vector<float> logits = Normal(kTokens * kVocabulary, 2, 3);
  const Result whole = Run(logits, Targets(), {0, kVocabulary}, {});
  for (const std::vector<int64_t>& cut :
       {std::vector<int64_t>{0, 27, 53}, {0, 18, 36, 53}, {0, 1, 52, 53}}) {
    const Result parts = Run(logits, Targets(), cut, {});
    EXPECT_NEAR(parts.loss / whole.loss, 1, 1e-7);
    EXPECT_LT(RelativeError(parts.gradient, ToDoubles(whole.gradient)), 2e-7);
  }
}

// Terms beside cross-entropy, each alone and both.
constexpr LossTerms kTerms[] = {
    {.scale = 0.125, .z_weight = 0.02, .vocabulary = kVocabulary},
    {.scale = 0.125, .smoothing = 0.1, .vocabulary = kVocabulary},
    {.scale = 0.125, .z_weight = 0.02, .smoothing = 0.3, .vocabulary = kVocabulary}};

double LossWithTerms(const Doubles& logits, const std::vector<int32_t>& targets,
                     const LossTerms& terms) {
  double loss = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    const auto first = logits.begin() + static_cast<int64_t>(row) * kVocabulary;
    double total = 0, mean = 0;
    for (auto x = first; x != first + kVocabulary; ++x) total += std::exp(*x);
    for (auto x = first; x != first + kVocabulary; ++x) mean += *x / kVocabulary;
    const double log_sum = std::log(total);
    loss += log_sum - (1 - terms.smoothing) * first[targets[row]] - terms.smoothing * mean +
            terms.z_weight * log_sum * log_sum;
  }
  return loss;
}

TEST_P(CrossEntropy, WithOtherTermsHasTheGradientOfTheirSumForAnyCutOfTheVocabulary) {
  const std::vector<float> logits = Normal(kTokens * kVocabulary, 5, 3);
  const Doubles logits64 = ToDoubles(logits);
  for (const LossTerms& terms : kTerms) {
    Doubles expected = DifferenceQuotient(
        [&](const Doubles& x) { return LossWithTerms(x, Targets(), terms); }, logits64);
    for (double& value : expected) value *= terms.scale;
    for (const std::vector<int64_t>& cut :
         {std::vector<int64_t>{0, kVocabulary}, {0, 27, kVocabulary}, {0, 1, 52, kVocabulary}}) {
      const Result result = Run(logits, Targets(), cut, terms);
      EXPECT_NEAR(result.loss / LossWithTerms(logits64, Targets(), terms), 1, 2e-7);
      EXPECT_LT(RelativeError(result.gradient, expected), 5e-7);
    }
  }
}

TEST_P(CrossEntropy, SurvivesLargeLogits) {
  std::vector<float> logits(kTokens * kVocabulary, -1e4F);
  for (int64_t row = 0; row < kTokens; ++row) {
    const auto first = static_cast<size_t>(row * kVocabulary);
    logits[first + static_cast<size_t>(Targets()[static_cast<size_t>(row)])] = 1e4F;
  }
  const Result result = Run(logits, Targets(), {0, 20, kVocabulary}, {});
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(std::count(result.gradient.begin(), result.gradient.end(), 0.0F),
            kTokens * kVocabulary);
}

TEST_P(CrossEntropy, ADivergedModelShowsAsNotANumber) {
  std::vector<float> logits = Normal(kTokens * kVocabulary, 2);
  logits[5] = NAN;
  EXPECT_TRUE(std::isnan(Run(logits, Targets(), {0, kVocabulary}, {}).loss));
}

// On rows of few and of many elements, aligned or not, and on more of them than a device takes up
// at once.
TEST_P(CrossEntropy, OfAWholeVocabularyIsTheThreeOperations) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{9, 53}, {3, 1}, {601, 77}, {268, 128}, {3, 60003}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols));
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>(i * 7919 % cols));
    const View ids = UploadIds(targets);
    std::vector<float> values = Normal(rows * cols, 1, 3);
    // A model masks some logits: the loss counts them as impossible.
    for (size_t i = 0; i < values.size(); i += 5) {
      const auto row = static_cast<int64_t>(i) / cols;
      if (targets[static_cast<size_t>(row)] != static_cast<int64_t>(i) % cols)
        values[i] = -INFINITY;
    }
    const LossTerms terms = {.scale = 0.125, .z_weight = rows % 2 == 1 ? 0.01 : 0};
    View results[2][4];  // logits, row_max, row_sum, target_logit
    for (View(&x)[4] : results) {
      x[0] = Upload(rows, cols, values);
      for (int i = 1; i < 4; ++i) x[i] = Fresh(rows, 1);
    }
    const View(&one)[4] = results[0];
    const View(&three)[4] = results[1];
    device().CrossEntropy(ids, terms, one[0], one[1], one[2], one[3]);
    device().RowMax(three[0], three[1]);
    device().RowSumExp(three[0], three[1], ids, 0, {}, three[2], three[3]);
    device().SoftmaxGradient(three[1], three[2], ids, 0, terms, three[0]);
    EXPECT_EQ(Download(one[1]), Download(three[1])) << "row_max";
    EXPECT_EQ(Download(one[3]), Download(three[3])) << "target_logit";
    EXPECT_LT(RelativeError(Download(one[2]), ToDoubles(Download(three[2]))), 2e-7) << "row_sum";
    EXPECT_LT(RelativeError(Download(one[0]), ToDoubles(Download(three[0]))), 2e-7);
  }
}

// The gradient through the cap is the derivative of the loss of cap tanh(x / cap).
TEST_P(CrossEntropy, OfCappedLogitsHasTheGradientOfWhatTheyAreMadeOf) {
  constexpr int64_t kRows = 3, kCols = 37;
  constexpr double kCap = 1.5, kScale = 0.25;
  const std::vector<float> values = Normal(kRows * kCols, 1, 2);
  const std::vector<int32_t> targets = {0, 36, 17};
  const auto loss = [&](const Doubles& x) {
    double sum = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      double total = 0;
      const auto logit = [&](int64_t i) {
        return kCap * std::tanh(x[static_cast<size_t>(row * kCols + i)] / kCap);
      };
      for (int64_t i = 0; i < kCols; ++i) total += std::exp(logit(i));
      sum += kScale * (std::log(total) - logit(targets[static_cast<size_t>(row)]));
    }
    return sum;
  };
  const View logits = Upload(kRows, kCols, values);
  const View row_max = Fresh(kRows, 1), row_sum = Fresh(kRows, 1), target = Fresh(kRows, 1);
  device().Cap(logits, kCap);
  Doubles capped = ToDoubles(values);
  for (double& value : capped) value = kCap * std::tanh(value / kCap);
  EXPECT_LT(RelativeError(Download(logits), capped), 3e-7);
  device().CrossEntropy(UploadIds(targets), {.scale = kScale, .cap = kCap}, logits, row_max,
                        row_sum, target);
  EXPECT_LT(RelativeError(Download(logits), DifferenceQuotient(loss, ToDoubles(values))), 2e-6);
}

// Both ways of a whole vocabulary, capped.
TEST_P(CrossEntropy, OfCappedLogitsCountsItsOtherTermsThroughTheCap) {
  constexpr double kCap = 1.5;
  const LossTerms terms = {
      .scale = 0.25, .cap = kCap, .z_weight = 0.05, .smoothing = 0.2, .vocabulary = kVocabulary};
  const std::vector<float> values = Normal(kTokens * kVocabulary, 4, 2);
  const View logits = Upload(kTokens, kVocabulary, values);
  const View row_max = Fresh(kTokens, 1), row_sum = Fresh(kTokens, 1), target = Fresh(kTokens, 1);
  device().Cap(logits, kCap);
  device().CrossEntropy(UploadIds(Targets()), terms, logits, row_max, row_sum, target);
  Doubles expected = DifferenceQuotient(
      [&](Doubles x) {
        for (double& value : x) value = kCap * std::tanh(value / kCap);
        return terms.scale * LossWithTerms(x, Targets(), terms);
      },
      ToDoubles(values));
  EXPECT_LT(RelativeError(Download(logits), expected), 2e-6);
}

TEST_P(CrossEntropy, OfAWholeVocabularyShowsADivergedModelToo) {
  std::vector<float> logits = Normal(int64_t{2} * kVocabulary, 2);
  logits[5] = NAN;
  const View row_sum = Fresh(2, 1);
  device().CrossEntropy(UploadIds({1, 1}), {.scale = 1}, Upload(2, kVocabulary, logits),
                        Fresh(2, 1), row_sum, Fresh(2, 1));
  const std::vector<float> sums = Download(row_sum);
  EXPECT_TRUE(std::isnan(sums[0]));
  EXPECT_TRUE(std::isfinite(sums[1]));
}

}  // namespace
}  // namespace weft
