// Operands of more than 2^31 elements, as 64 sequences of 1024 tokens have logits of GPT-2's
// vocabulary (3.3e9). A few rows hold numbers, at both ends and where an int would overflow, and
// all else zeros; what becomes of them is what becomes of them alone.
#include <climits>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

constexpr int64_t kRows = 64 * 1024;
constexpr int64_t kCols = 50304;
static_assert(kRows * kCols > INT_MAX);
constexpr int64_t kOverflow = INT_MAX / kCols;  // the row in which elements are counted past an int
constexpr int64_t kMarked[] = {0, kOverflow, kOverflow + 1, kRows - 1};
constexpr int64_t kMarks = 4;

class ManyElements : public DeviceTest {
 protected:
  void TearDown() override {
    for (const View& x : taken_) device().Free(x.data, x.bytes());
    DeviceTest::TearDown();
  }
  // Zeros; without data where the device has not the memory.
  View Zeros(int64_t rows, int64_t cols, DType dtype) {
    View x = {nullptr, rows, cols, dtype};
    x.data = device().Allocate(x.bytes());
    if (x.data == nullptr) {
      device().Synchronize();  // takes the failure
      return {};
    }
    device().Zero(x);
    taken_.push_back(x);
    return x;
  }
  // Numbers for the marked rows, as they are alone.
  View Marks(int64_t cols, uint32_t seed) {
    return As(DType::kBf16, Upload(kMarks, cols, Normal(kMarks * cols, seed)));
  }
  void PutMarks(View marks, View x) {
    for (int64_t i = 0; i < kMarks; ++i) {
      device().Copy(x.RowRange(kMarked[i], 1), marks.RowRange(i, 1));
    }
  }
  void ExpectMarks(View x, View marks) {
    for (int64_t i = 0; i < kMarks; ++i) {
      EXPECT_EQ(Download(x.RowRange(kMarked[i], 1)), Download(marks.RowRange(i, 1)))
          << "row " << kMarked[i];
    }
  }

 private:
  std::vector<View> taken_;
};
INSTANTIATE_TEST_SUITE_P(Backends, ManyElements, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

TEST_P(ManyElements, HaveTheCrossEntropyOfEachRow) {
  const View logits = Zeros(kRows, kCols, DType::kBf16);
  if (logits.data == nullptr) GTEST_SKIP() << "the device has no room for " << kRows << " rows";
  const View marks = Marks(kCols, 1);
  PutMarks(marks, logits);
  std::vector<int32_t> ids(kRows, 7);
  for (const int64_t row : kMarked) ids[static_cast<size_t>(row)] = kCols - 1;
  const View targets = UploadIds(ids), of_marks = UploadIds(std::vector<int32_t>(4, kCols - 1));
  const View row_max = Fresh(kRows, 1), row_sum = Fresh(kRows, 1), target_logit = Fresh(kRows, 1);
  const View max_of = Fresh(kMarks, 1), sum_of = Fresh(kMarks, 1), logit_of = Fresh(kMarks, 1);
  device().CrossEntropy(targets, {.scale = 0.5}, logits, row_max, row_sum, target_logit);
  device().CrossEntropy(of_marks, {.scale = 0.5}, marks, max_of, sum_of, logit_of);
  ExpectMarks(logits, marks);
  ExpectMarks(row_sum, sum_of);
  ExpectMarks(target_logit, logit_of);
  EXPECT_THAT(Download(row_sum.RowRange(kOverflow + 2, 1)), ::testing::ElementsAre(kCols));
}

TEST_P(ManyElements, AreMultipliedAndMade) {
  constexpr int64_t kDepth = 64;
  const View logits = Zeros(kRows, kCols, DType::kBf16);
  const View x = Zeros(kRows, kDepth, DType::kBf16);
  if (x.data == nullptr) GTEST_SKIP() << "the device has no room for " << kRows << " rows";
  const View marks = Marks(kDepth, 1);
  PutMarks(marks, x);
  const View weight = As(DType::kBf16, Upload(kCols, kDepth, Normal(kCols * kDepth, 2)));
  const View of_marks = As(DType::kBf16, Fresh(kMarks, kCols));
  device().MatMul(x, Transpose::kNo, weight, Transpose::kYes, 0, logits);
  device().MatMul(marks, Transpose::kNo, weight, Transpose::kYes, 0, of_marks);
  // Kernels of other shapes add in another order: a unit of bf16 at most.
  for (int64_t i = 0; i < kMarks; ++i) {
    const std::vector<float> alone = Download(of_marks.RowRange(i, 1));
    EXPECT_LT(RelativeError(Download(logits.RowRange(kMarked[i], 1)), ToDoubles(alone)), 0x1p-8);
  }
  // All other rows are zeros: the gradient of the weights is that of the marked rows.
  const View gradient = Upload(kCols, kDepth, std::vector<float>(kCols * kDepth, 0));
  const View expected = Upload(kCols, kDepth, std::vector<float>(kCols * kDepth, 0));
  device().MatMul(logits, Transpose::kYes, x, Transpose::kNo, 1, gradient);
  device().MatMul(of_marks, Transpose::kYes, marks, Transpose::kNo, 1, expected);
  EXPECT_LT(RelativeError(Download(gradient), ToDoubles(Download(expected))), 0x1p-8);
}

TEST_P(ManyElements, AreUpdated) {
  constexpr int64_t kElements = (int64_t{1} << 31) + (1 << 20);
  constexpr int64_t kPart = 1 << 16;
  View large[4], small[4];
  for (int i = 0; i < 4; ++i) {
    large[i] = Zeros(1, kElements, DType::kF32);
    if (large[i].data == nullptr) GTEST_SKIP() << "the device has no room for their states";
    small[i] = Upload(1, kPart, std::vector<float>(kPart, 0));
  }
  const View gradient = Upload(1, kPart, Normal(kPart, 1));
  device().Copy(large[0].ColRange(kElements - kPart, kPart), gradient);
  device().Copy(small[0], gradient);
  const AdamwParameters parameters = {
      .lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
  for (const View* const views : {large, small}) {
    const AdamwSegment segment = {
        .gradient = views[0], .param = views[1], .exp_avg = views[2], .exp_avg_sq = views[3]};
    device().updates().Adamw(parameters, &segment, 1);
  }
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(Download(large[i].ColRange(kElements - kPart, kPart)), Download(small[i]));
    EXPECT_THAT(Download(large[i].ColRange(0, kPart)), ::testing::Each(0.0F));
  }
}

}  // namespace
}  // namespace weft
