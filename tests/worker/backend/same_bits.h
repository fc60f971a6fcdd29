// The bits that weft promises depend on OpenBLAS's kernels (docs/reproducibility.md): with those
// for AVX-512 an element of a product is one chain of additions, whatever else is multiplied; with
// those for AVX2 it depends on how many rows and columns there are.
#pragma once
#include <cblas.h>

#include <string>

#include "gtest/gtest.h"

namespace weft {

inline bool ElementsAreSummedAlone() {
  const std::string kernels = openblas_get_corename();
  return kernels == "SkylakeX" || kernels == "Cooperlake" || kernels == "SapphireRapids" ||
         kernels == "Sandybridge";
}

// Losses in fp32 of the same sequences, computed with other numbers of rows or columns at once.
inline void ExpectTheSameLoss(double loss, double expected) {
  SCOPED_TRACE(openblas_get_corename());
  if (ElementsAreSummedAlone()) {
    EXPECT_EQ(loss, expected);
  } else {
    EXPECT_NEAR(loss / expected, 1, 1e-6);
  }
}

}  // namespace weft
