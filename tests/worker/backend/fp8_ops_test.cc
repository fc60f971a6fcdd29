// Tensors in 8-bit floating point and their products, against plain definitions in double. What a
// code's number is, fp8_test.cc shows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/fp8.h"

namespace weft {
namespace {

class Fp8Ops : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const Fp8View zeros = Quantised(16, 16, DType::kE4m3, std::vector<float>(256));
    device().Fp8MatMul(zeros, zeros, 0, Fresh(16, 16));
    const std::string failure = device().Synchronize().text;
    if (failure.find("NOT_SUPPORTED") != std::string::npos) GTEST_SKIP() << failure;
  }

  // Room for codes, filled with not-a-number's bytes.
  View Codes(int64_t rows, int64_t cols, DType type) {
    return {Fresh(rows, (cols + 3) / 4).data, rows, cols, type};
  }
  std::vector<uint8_t> DownloadCodes(View codes) {
    std::vector<uint8_t> values(static_cast<size_t>(codes.elements()));
    device().CopyOut(values.data(), codes);
    return values;
  }
  std::vector<float> InBf16(const std::vector<float>& values) {
    return Download(As(DType::kBf16, Upload(1, static_cast<int64_t>(values.size()), values)));
  }
  Fp8View Quantised(int64_t rows, int64_t cols, DType type, const std::vector<float>& values) {
    const Fp8View to = {Codes(rows, cols, type), Fresh(1, 1)};
    device().ToFp8(As(DType::kBf16, Upload(rows, cols, values)), to.codes, View(), to.scale);
    return to;
  }
  Doubles Numbers(const Fp8View& x) {
    const std::array<float, 256> numbers = Fp8Numbers(Fp8FormatOf(x.codes.dtype));
    const auto scale = static_cast<double>(Download(x.scale).front());
    Doubles values;
    for (const uint8_t code : DownloadCodes(x.codes)) {
      values.push_back(scale * static_cast<double>(numbers[code]));
    }
    return values;
  }
  void ExpectRefused(const char* operation) {
    const BackendStatus status = device().Synchronize();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(std::string(status.text).find(operation), std::string::npos) << status.text;
  }
};

constexpr DType kTypesOf8Bits[] = {DType::kE4m3, DType::kE5m2};

TEST_P(Fp8Ops, CodesAreNearestUnderTheTensorsOwnScaleAsItLiesAndTransposed) {
  const std::pair<int64_t, int64_t> shapes[] = {{16, 16}, {48, 80}, {64, 64}, {144, 208}};
  for (const DType type : kTypesOf8Bits) {
    const Fp8Format& format = Fp8FormatOf(type);
    for (const auto& [rows, cols] : shapes) {
      std::vector<float> values = InBf16(Normal(rows * cols, 7, 0.02F));
      values[5] = 0;
      values[6] = 0x1p-30F;
      values.back() = -0.75F;  // the largest
      const View x = As(DType::kBf16, Upload(rows, cols, values));
      const View codes = Codes(rows, cols, type), transposed = Codes(cols, rows, type);
      const View scale = Fresh(1, 1);
      device().ToFp8(x, codes, transposed, scale);
      EXPECT_EQ(Download(scale).front(), Fp8Scale(format, 0.75F));
      const std::vector<uint8_t> straight = DownloadCodes(codes);
      const std::vector<uint8_t> across = DownloadCodes(transposed);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          const auto at = static_cast<size_t>(row * cols + col);
          const uint8_t wanted = ToFp8(format, values[at] / Fp8Scale(format, 0.75F));
          ASSERT_EQ(straight[at], wanted) << row << ", " << col;
          ASSERT_EQ(across[static_cast<size_t>(col * rows + row)], wanted) << row << ", " << col;
        }
      }
      const View alone = Codes(rows, cols, type), alone_transposed = Codes(cols, rows, type);
      device().ToFp8(x, alone, View(), scale);
      device().ToFp8(x, View(), alone_transposed, scale);
      EXPECT_EQ(DownloadCodes(alone), straight);
      EXPECT_EQ(DownloadCodes(alone_transposed), across);
    }
  }
}

TEST_P(Fp8Ops, ZerosHaveTheScaleOne) {
  for (const DType type : kTypesOf8Bits) {
    const Fp8View zeros = Quantised(32, 16, type, std::vector<float>(512));
    EXPECT_EQ(Download(zeros.scale).front(), 1);
    EXPECT_EQ(Numbers(zeros), Doubles(512));
  }
}

TEST_P(Fp8Ops, WhatIsNotFiniteSpoilsItsRowOfAProductAndNoScale) {
  std::vector<float> values = Normal(32 * 48, 3);
  values[100] = std::numeric_limits<float>::infinity();  // row 2
  values[500] = std::nanf("");                           // row 10
  const float largest = InBf16({*std::max_element(values.begin() + 501, values.end())}).front();
  values[0] = 2 * largest;
  const Fp8View a = Quantised(32, 48, DType::kE4m3, values);
  EXPECT_EQ(Download(a.scale).front(), Fp8Scale(kE4m3Format, 2 * largest));
  const Fp8View b = Quantised(16, 48, DType::kE4m3, Normal(16 * 48, 4));
  const View c = Fresh(32, 16);
  device().Fp8MatMul(a, b, 0, c);
  const std::vector<float> product = Download(c);
  for (size_t i = 0; i < product.size(); ++i) {
    const size_t row = i / 16;
    EXPECT_EQ(std::isnan(product[i]), row == 2 || row == 10) << i;
  }
}

// Bounds by how much a device may miss a sum of products. Tensor cores shift what they add up at
// once, 32 products of 8 bits and the sum before them, to the exponent of the largest and cut off
// what is below some 13 bits of that (DeepSeek-AI, arXiv:2412.19437, 3.3.2). Others add up in f32.
double SumBound(const std::string& backend, double before, const Doubles& products) {
  constexpr size_t kAtOnce = 32;
  const double unit = backend == "cpu" ? 0x1p-23 : 0x1p-13;
  double sum = before, bound = 0;
  for (size_t first = 0; first < products.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, products.size() - first);
    double largest = std::abs(sum);
    for (size_t i = first; i < first + count; ++i) {
      largest = std::max(largest, std::abs(products[i]));
      sum += products[i];
    }
    // A sum on the way may be as large as all of them.
    const double terms = static_cast<double>(count + 1);
    bound += terms * unit * largest * (backend == "cpu" ? terms : 1);
  }
  return bound + 0x1p-23 * std::abs(sum);
}

// Each value may miss what is expected by its bound and by `rounding` of itself.
void ExpectWithin(const std::vector<float>& found, const Doubles& expected, const Doubles& bound,
                  double rounding) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i],
                bound[i] + rounding * (std::abs(expected[i]) + bound[i]))
        << i;
  }
}

TEST_P(Fp8Ops, ProductsAreThoseOfTheCodesNumbers) {
  struct Case {
    int64_t m, n, k;
    DType a, b;
  };
  const Case cases[] = {{16, 16, 16, DType::kE4m3, DType::kE4m3},
                        {48, 32, 80, DType::kE5m2, DType::kE4m3},
                        {32, 144, 64, DType::kE4m3, DType::kE5m2},
                        {528, 16, 528, DType::kE4m3, DType::kE4m3}};
  for (const auto& [m, n, k, type_a, type_b] : cases) {
    const Fp8View a = Quantised(m, k, type_a, Normal(m * k, 1, 3));
    const Fp8View b = Quantised(n, k, type_b, Normal(n * k, 2, 0.01F));
    const Doubles x = Numbers(a), y = Numbers(b);
    const std::vector<float> before = InBf16(Normal(m * n, 5));
    for (const float beta : {0.0F, 1.0F}) {
      Doubles expected, bound;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const double first = beta * static_cast<double>(before[static_cast<size_t>(i * n + j)]);
          Doubles products(static_cast<size_t>(k));
          for (int64_t at = 0; at < k; ++at) {
            products[static_cast<size_t>(at)] =
                x[static_cast<size_t>(i * k + at)] * y[static_cast<size_t>(j * k + at)];
          }
          expected.push_back(std::accumulate(products.begin(), products.end(), first));
          bound.push_back(SumBound(GetParam(), first, products));
        }
      }
      const View wide = beta == 0 ? Fresh(m, n) : Upload(m, n, before);
      device().Fp8MatMul(a, b, beta, wide);
      ExpectWithin(Download(wide), expected, bound, 0);
      const View narrow = As(DType::kBf16, Upload(m, n, before));
      device().Fp8MatMul(a, b, beta, narrow);
      ExpectWithin(Download(narrow), expected, bound, 0x1p-8);  // a unit of bf16
    }
  }
}

// A stale scale, a forgotten transpose or the other format would show far above this: 2^-4 for
// each factor in e4m3, 2^-3 in e5m2, at random.
TEST_P(Fp8Ops, ProductsAreNearThoseOfTheTensorsThemselves) {
  constexpr int64_t kM = 48, kN = 64, kK = 128;
  const std::vector<float> a = InBf16(Normal(kM * kK, 1)), b = InBf16(Normal(kN * kK, 2, 20));
  Doubles expected;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double sum = 0;
      for (int64_t at = 0; at < kK; ++at) {
        sum += static_cast<double>(a[static_cast<size_t>(i * kK + at)]) *
               static_cast<double>(b[static_cast<size_t>(j * kK + at)]);
      }
      expected.push_back(sum);
    }
  }
  for (const DType type : kTypesOf8Bits) {
    const View c = Fresh(kM, kN);
    device().Fp8MatMul(Quantised(kM, kK, type, a), Quantised(kN, kK, DType::kE4m3, b), 0, c);
    const double error = RelativeError(Download(c), expected);
    EXPECT_LT(error, type == DType::kE4m3 ? 0.05 : 0.08);
    EXPECT_GT(error, 0.01) << "this was not computed in 8 bits";
  }
}

TEST_P(Fp8Ops, AProductMayBeColumnsOfAWiderMatrix) {
  constexpr int64_t kM = 32, kN = 48, kK = 64, kWide = 96;
  const Fp8View a = Quantised(kM, kK, DType::kE5m2, Normal(kM * kK, 1));
  const Fp8View b = Quantised(kN, kK, DType::kE4m3, Normal(kN * kK, 2));
  const View whole = Fresh(kM, kN);
  device().Fp8MatMul(a, b, 0, whole);
  const std::vector<float> before = Normal(kM * kWide, 3);
  const View wide = Upload(kM, kWide, before);
  device().Fp8MatMul(a, b, 0, wide.ColRange(kWide - kN, kN));
  const std::vector<float> expected = Download(whole), found = Download(wide);
  for (int64_t row = 0; row < kM; ++row) {
    for (int64_t col = 0; col < kWide; ++col) {
      const auto at = static_cast<size_t>(row * kWide + col);
      const bool is_before = col < kWide - kN;
      const auto of_product = static_cast<size_t>(row * kN + col - (kWide - kN));
      ASSERT_EQ(found[at], is_before ? before[at] : expected[of_product]) << row << " " << col;
    }
  }
  device().Fp8MatMul(a, b, 1, wide.ColRange(kWide - kN, kN));
  ExpectRefused("Fp8MatMul");
}

TEST_P(Fp8Ops, OperandsThatDoNotFitAreRefused) {
  const View scale = Fresh(1, 1);
  const View x = As(DType::kBf16, Upload(32, 32, Normal(1024, 1)));
  const View codes = Codes(32, 32, DType::kE4m3);
  device().ToFp8(x, View(), View(), scale);
  ExpectRefused("ToFp8");
  device().ToFp8(x, codes, Codes(32, 32, DType::kE5m2), scale);
  ExpectRefused("ToFp8");
  device().ToFp8(Upload(32, 32, Normal(1024, 1)), codes, View(), scale);
  ExpectRefused("ToFp8");
  device().ToFp8(As(DType::kBf16, Upload(32, 24, Normal(768, 1))), Codes(32, 24, DType::kE4m3),
                 View(), scale);
  ExpectRefused("ToFp8");
  const Fp8View wide = Quantised(32, 32, DType::kE5m2, Normal(1024, 1));
  device().Fp8MatMul(wide, wide, 0, Fresh(32, 32));
  ExpectRefused("Fp8MatMul");
  const Fp8View other_depth = Quantised(32, 16, DType::kE4m3, Normal(512, 1));
  device().Fp8MatMul(wide, other_depth, 0, Fresh(32, 32));
  ExpectRefused("Fp8MatMul");
}

INSTANTIATE_TEST_SUITE_P(Backends, Fp8Ops, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace weft
