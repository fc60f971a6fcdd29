#include "worker/backend/blas_kernels.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr ProcessorFeatures kRome = {.avx2 = true};
constexpr ProcessorFeatures kGenoa = {.avx2 = true, .avx512 = true, .avx512_bf16 = true};

TEST(BlasKernels, AreThoseOfTheWidestVectorsOfAnIntelProcessor) {
  EXPECT_STREQ(BlasKernelsFor({.intel = true, .avx2 = true, .avx512 = true}), "SkylakeX");
  EXPECT_STREQ(BlasKernelsFor({.intel = true, .avx2 = true}), "Haswell");
  EXPECT_STREQ(BlasKernelsFor({.intel = true}), "");
  EXPECT_STREQ(BlasKernelsFor(kGenoa), "") << "OpenBLAS knows AMD's by itself";
}

TEST(BlasKernels, AreTheUsersWhereTheProcessorExecutesThem) {
  for (const char* kernels : {"Haswell", "zen", "ZEN"}) {
    const BlasChoice choice = ChooseBlasKernels(kRome, kernels);
    EXPECT_EQ(choice.kernels, kernels);
    EXPECT_EQ(choice.note, "");
  }
  EXPECT_EQ(ChooseBlasKernels(kGenoa, "SkylakeX").note, "") << "as fast in single precision";
}

TEST(BlasKernels, AreToldToBeSlowWhereTheUsersAreNarrowerThanTheProcessor) {
  const BlasChoice choice = ChooseBlasKernels(kGenoa, "Haswell");
  EXPECT_EQ(choice.kernels, "Haswell");
  EXPECT_EQ(choice.note,
            "OPENBLAS_CORETYPE=Haswell takes kernels for AVX2 on a processor with AVX-512 with "
            "bf16: products take up to twice as long; unset it");
}

// They would end the process by SIGILL.
TEST(BlasKernels, AreNotTheUsersWhereTheProcessorLacksTheirInstructions) {
  const BlasChoice choice = ChooseBlasKernels(kRome, "SkylakeX");
  EXPECT_EQ(choice.kernels, "");
  EXPECT_THAT(choice.note, HasSubstr("SkylakeX is ignored: its kernels need AVX-512"));
  const ProcessorFeatures intel = {.intel = true, .avx2 = true};
  EXPECT_EQ(ChooseBlasKernels(intel, "Cooperlake").kernels, "Haswell");
}

TEST(BlasKernels, AreNotOnesThatOpenBlasDoesNotHave) {
  const BlasChoice choice = ChooseBlasKernels(kRome, "Zen9");
  EXPECT_EQ(choice.kernels, "");
  EXPECT_THAT(choice.note, HasSubstr("Zen9 is ignored: OpenBLAS 0.3.21 has no such kernels"));
}

}  // namespace
}  // namespace weft
