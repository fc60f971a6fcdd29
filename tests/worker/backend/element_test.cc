// How elements of 16 bits become float and back.
#include "worker/backend/cpu/kernels/element.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace weft {
namespace {

template <typename T>
T Narrowed(float x) {
  T narrow;
  Narrow(x, &narrow);
  return narrow;
}

template <typename T>
void ExpectEveryValueSurvives() {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value = {static_cast<uint16_t>(bits)};
    const float wide = Widen(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(Widen(Narrowed<T>(wide)))) << bits;
    } else {
      ASSERT_EQ(Narrowed<T>(wide).bits, bits);
    }
  }
}

// Between each two neighbours: below the middle down, above it up, on it to the even one.
template <typename T>
void ExpectNearestEven(uint32_t infinity) {
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = static_cast<double>(Widen(T{static_cast<uint16_t>(bits)}));
    const double high = static_cast<double>(Widen(T{static_cast<uint16_t>(bits + 1)}));
    const auto middle = static_cast<float>((low + high) / 2);
    if (std::abs(middle) < std::numeric_limits<float>::min()) continue;  // flushed, as any such f32
    ASSERT_EQ(Narrowed<T>(middle).bits, bits % 2 == 0 ? bits : bits + 1) << middle;
    ASSERT_EQ(Narrowed<T>(std::nextafter(middle, 0.0F)).bits, bits) << middle;
    ASSERT_EQ(Narrowed<T>(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits,
              bits + 1)
        << middle;
    ASSERT_EQ(Narrowed<T>(-middle).bits, 0x8000 + (bits % 2 == 0 ? bits : bits + 1)) << middle;
  }
}

TEST(Bf16, KeepsItsValuesAndRoundsToTheNearestEven) {
  ExpectEveryValueSurvives<Bf16>();
  ExpectNearestEven<Bf16>(0x7f80);
  EXPECT_EQ(Widen(Bf16{0x3f80}), 1.0F);
  EXPECT_TRUE(std::isinf(Widen(Narrowed<Bf16>(3.4e38F))));
}

TEST(Fp16, KeepsItsValuesAndRoundsToTheNearestEven) {
  ExpectEveryValueSurvives<Fp16>();
  ExpectNearestEven<Fp16>(0x7c00);
  EXPECT_EQ(Widen(Fp16{0x3c00}), 1.0F);
  EXPECT_EQ(Widen(Fp16{0x0001}), 0x1p-24F);
  EXPECT_EQ(Widen(Fp16{0x7bff}), 65504.0F);
  EXPECT_EQ(Narrowed<Fp16>(65519.9F).bits, 0x7bff);
  EXPECT_EQ(Narrowed<Fp16>(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Narrowed<Fp16>(-1e30F).bits, 0xfc00);
}

}  // namespace
}  // namespace weft
