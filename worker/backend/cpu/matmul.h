// Matrix products in single precision, by OpenBLAS: twice the speed of oneDNN on the shapes of
// small transformers. Several devices of one process may call at once.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

// c is [m, n], the products run over k; rows are lda, ldb, ldc elements apart. a and b are as
// stored, before the transposes.
struct MatMulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
};

// Of the whole process.
void SetMatMulThreads(int threads);

// c = alpha * op(a) op(b) + beta * c. With beta 0, c is not read.
void MatMulStrided(const MatMulShape& shape, float alpha, const float* a, Transpose transpose_a,
                   const float* b, Transpose transpose_b, float beta, float* c);

}  // namespace weft
