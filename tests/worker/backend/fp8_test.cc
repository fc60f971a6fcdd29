// The two formats of 8-bit floating point: every code, against a formula written from the paper.
#include "worker/backend/fp8.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

struct NamedFormat {
  std::string name;
  Fp8Format format;
  int exponent_bits, mantissa_bits, bias;
  int first_not_a_number;  // of the codes without sign
};

class Fp8Formats : public ::testing::TestWithParam<NamedFormat> {
 protected:
  // Micikevicius et al., arXiv:2209.05433, table 1: (-1)^s 2^(e - bias) (1 + m / 2^bits), without
  // the 1 and with e = 1 where e is 0.
  double NumberOf(int code) const {
    const auto& [name, format, exponent_bits, mantissa_bits, bias, first] = GetParam();
    const int e = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    const double m = code & ((1 << mantissa_bits) - 1);
    const double fraction = m / std::pow(2.0, mantissa_bits);
    const double magnitude =
        e == 0 ? std::pow(2.0, 1 - bias) * fraction : std::pow(2.0, e - bias) * (1 + fraction);
    return code < 128 ? magnitude : -magnitude;
  }
  bool IsNumber(int code) const { return (code & 0x7f) < GetParam().first_not_a_number; }
  int CodeOf(double x) const { return ToFp8(GetParam().format, static_cast<float>(x)); }
};

TEST_P(Fp8Formats, EveryCodeHasThePapersNumber) {
  const std::array<float, 256> numbers = Fp8Numbers(GetParam().format);
  for (int code = 0; code < 256; ++code) {
    const float number = numbers[static_cast<size_t>(code)];
    if (IsNumber(code)) {
      EXPECT_EQ(static_cast<double>(number), NumberOf(code)) << code;
    } else {
      EXPECT_TRUE(std::isnan(number)) << code;
    }
  }
  EXPECT_EQ(numbers[static_cast<size_t>(GetParam().format.largest_code)],
            std::ldexp(1.75F, GetParam().format.largest_exponent));
}

TEST_P(Fp8Formats, EveryNumberHasItsCode) {
  for (int code = 0; code < 256; ++code) {
    if (!IsNumber(code)) continue;
    EXPECT_EQ(CodeOf(NumberOf(code)), code) << code;
  }
}

// Half way between neighbours: the even code, and the nearer one an ulp of f32 to either side.
TEST_P(Fp8Formats, RoundsToTheNearestTiesToEven) {
  for (int code = 0; code + 1 < GetParam().first_not_a_number; ++code) {
    const auto middle = static_cast<float>((NumberOf(code) + NumberOf(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(CodeOf(middle), even) << code;
    EXPECT_EQ(CodeOf(-middle), even | 0x80) << code;
    EXPECT_EQ(CodeOf(std::nextafter(middle, 0.0F)), code) << code;
    EXPECT_EQ(CodeOf(std::nextafter(middle, 1e9F)), code + 1) << code;
  }
}

TEST_P(Fp8Formats, SaturatesWhatIsFiniteAndPassesOnWhatIsNot) {
  const int largest = GetParam().first_not_a_number - 1;
  for (const double beyond : {NumberOf(largest) * 1.001, NumberOf(largest) * 1.2, 1e6, 3e38}) {
    EXPECT_EQ(CodeOf(beyond), largest) << beyond;
    EXPECT_EQ(CodeOf(-beyond), largest | 0x80) << beyond;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    EXPECT_EQ(ToFp8(GetParam().format, x), kFp8NotANumber) << x;
  }
}

TEST_P(Fp8Formats, AScaleIsTheLeastPowerOfTwoThatLeavesNothingBeyondTheLargest) {
  const Fp8Format& format = GetParam().format;
  const double most = NumberOf(GetParam().first_not_a_number - 1);
  for (const float largest : {1.0F, 0.3F, 447.9F, 448.0F, 449.0F, 57344.0F, 57345.0F, 1.75F,
                              std::nextafter(1.75F, 2.0F), 3e38F, 1e-12F}) {
    const float scale = Fp8Scale(format, largest);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << largest;  // a power of two
    EXPECT_LE(static_cast<double>(largest) / static_cast<double>(scale), most) << largest;
    EXPECT_GT(static_cast<double>(largest) / static_cast<double>(scale), most / 2) << largest;
  }
  EXPECT_EQ(Fp8Scale(format, 0), 1);
  EXPECT_EQ(Fp8Scale(format, 1e-39F), 1);
  EXPECT_EQ(Fp8Scale(format, 1e-30F), 0x1p-63F);
}

// Layouts that cut a tensor agree because of this: fp8.h.
TEST_P(Fp8Formats, NumbersNearTheLargestDoNotDependOnTheScale) {
  const Fp8Format& format = GetParam().format;
  const std::array<float, 256> numbers = Fp8Numbers(format);
  const auto in_8_bits = [&](float x, float scale) {
    return numbers[ToFp8(format, x / scale)] * scale;
  };
  const float largest = 0.37F;
  const float scale = Fp8Scale(format, largest);
  const float least = largest * std::ldexp(1.0F, format.mantissa_bits == 3 ? -13 : -29);
  int below = 0;
  for (float x = largest; x > least / 1024; x *= 0.983F) {
    for (const float part : {1.0F, 0.5F, 0.25F}) {  // a part's largest magnitude is smaller
      if (x > largest * part) continue;
      const float other = in_8_bits(x, scale * part);
      if (x >= least) {
        EXPECT_EQ(in_8_bits(x, scale), other) << x << " " << part;
      } else {
        EXPECT_LE(std::abs(in_8_bits(x, scale) - other), 1.5F * scale * numbers[1] / 2);
        below += in_8_bits(x, scale) != other ? 1 : 0;
      }
    }
  }
  EXPECT_GT(below, 0) << "else this shows nothing";
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Formats,
                         ::testing::Values(NamedFormat{"e4m3", kE4m3Format, 4, 3, 7, 0x7f},
                                           NamedFormat{"e5m2", kE5m2Format, 5, 2, 15, 0x7c}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace weft
