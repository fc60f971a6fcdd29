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

// Of the whole process. Within a region of several threads (Threads::Run) each product is made by
// the thread that asks for it.
void SetMatMulThreads(int threads);

// c = alpha * op(a) op(b) + beta * c. With beta 0, c is not read.
void MatMulStrided(const MatMulShape& shape, float alpha, const float* a, Transpose transpose_a,
                   const float* b, Transpose transpose_b, float beta, float* c);

// c of [m, n] in rectangles that threads make at once: the larger ones of [rows, cols], the last of
// a row or a column what is left.
struct MatMulCut {
  int64_t rows = 0;
  int64_t cols = 0;
  friend bool operator==(const MatMulCut&, const MatMulCut&) = default;
};

// At most `threads` rectangles, whose sides but the last are multiples of 16: so that the largest
// takes least, its products and the parts of a and b that it reads. One, if there is little to do.
// Depends on nothing else, so that bits depend on nothing else. REQUIRES: threads >= 1.
MatMulCut CutOf(int64_t m, int64_t n, int64_t k, int threads);

}  // namespace weft
