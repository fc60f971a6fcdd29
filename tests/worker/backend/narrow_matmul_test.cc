// Products of 16-bit elements, by each way that there is.
#include "worker/backend/cpu/narrow_matmul.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/backend/cpu/element.h"

namespace weft {
namespace {

std::vector<Bf16> NormalBf16(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(static_cast<size_t>(count));
  for (Bf16& value : values) Narrow(normal(generator), &value);
  return values;
}

// A product of `rows` x 1050 x 530, over the edges of several blocks, added to what is there.
template <typename Result>
void ExpectBlocksToAgree(int64_t rows, Transpose transpose, double rounding) {
  constexpr int64_t kN = 530, kK = 1050;
  const bool flip = transpose == Transpose::kYes;
  std::vector<Bf16> a = NormalBf16(rows * kK, 1);
  std::vector<Bf16> b = NormalBf16(kK * kN, 2);
  std::vector<Result> results[2];
  for (const auto by : {NarrowMatMul::By::kBest, NarrowMatMul::By::kBlocks}) {
    std::vector<Result>& c = results[by == NarrowMatMul::By::kBest ? 0 : 1];
    for (const Bf16 value : NormalBf16(rows * kN, 3)) Narrow(Widen(value), &c.emplace_back());
    NarrowMatMul matmul(by);
    const BackendStatus status =
        matmul.Multiply({.m = rows,
                         .n = kN,
                         .k = kK,
                         .a = {a.data(), flip ? kK : rows, flip ? rows : kK, DType::kBf16},
                         .b = {b.data(), flip ? kN : kK, flip ? kK : kN, DType::kBf16},
                         .c = {c.data(), rows, kN, kElementType<Result>},
                         .transpose_a = transpose,
                         .transpose_b = transpose,
                         .beta = 1});
    ASSERT_TRUE(status.ok()) << status.text;
  }
  double largest = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const auto expected = static_cast<double>(Widen(results[0][i]));
    ASSERT_NEAR(Widen(results[1][i]), expected, rounding * std::abs(expected) + 2e-4) << i;
    largest = std::max(largest, std::abs(expected));
  }
  EXPECT_GT(largest, 50);  // sums of 1050 products: nothing was left out on both sides
}

TEST(NarrowMatMul, InBlocksGivesWhatOneDnnGives) {
  for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
    ExpectBlocksToAgree<float>(520, transpose, 0);
    ExpectBlocksToAgree<Bf16>(520, transpose,
                              2 * 0x1p-8 * 1.01);  // each is off from the sum by one
  }
}

// Rows that oneDNN is given in parts: fewer than one, one and a bit, three of different sizes.
TEST(NarrowMatMul, InPartsOfTheRowsGivesWhatBlocksGive) {
  for (const int64_t rows : {1, 63, 65, 129, 8195}) {
    ExpectBlocksToAgree<float>(rows, Transpose::kYes, 0);
  }
}

}  // namespace
}  // namespace weft
