#include "worker/backend/blas_kernels.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(BlasKernels, AreThoseOfTheWidestVectorsOfAnIntelProcessor) {
  EXPECT_STREQ(BlasKernelsFor({.intel = true, .avx2 = true, .avx512 = true}), "SkylakeX");
  EXPECT_STREQ(BlasKernelsFor({.intel = true, .avx2 = true}), "Haswell");
  EXPECT_STREQ(BlasKernelsFor({.intel = true}), "");
  EXPECT_STREQ(BlasKernelsFor({.avx2 = true, .avx512 = true}), "")
      << "OpenBLAS knows AMD's by itself";
}

TEST(BlasKernels, AreTheUsersWhereHeChoseThem) {
  const char* const before = std::getenv("OPENBLAS_CORETYPE");
  const std::string kept = before == nullptr ? "" : before;
  setenv("OPENBLAS_CORETYPE", "Sandybridge", /*overwrite=*/1);
  ChooseBlasKernels();
  EXPECT_STREQ(std::getenv("OPENBLAS_CORETYPE"), "Sandybridge");
  unsetenv("OPENBLAS_CORETYPE");
  ChooseBlasKernels();
  const char* const chosen = std::getenv("OPENBLAS_CORETYPE");
  EXPECT_STREQ(BlasKernelsFor(FeaturesOfThisProcessor()), chosen == nullptr ? "" : chosen);
  if (before != nullptr) setenv("OPENBLAS_CORETYPE", kept.c_str(), /*overwrite=*/1);
}

}  // namespace
}  // namespace weft
