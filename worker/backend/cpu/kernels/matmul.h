// Matrix products in single precision, by OpenBLAS: twice the speed of oneDNN on the shapes of
// small transformers. Several devices of one process may call at once.
#pragma once
#include <algorithm>
#include <cstdint>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/device.h"

namespace weft {

// c is [m, n], the products run over k; rows are lda, ldb, ldc elements apart. a and b are as
// stored, before the transposes.
struct MatMulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
};

// Sets the threads of products for the whole process. Within a region of several threads
// (Threads::Run) each product is made by the thread that asks for it.
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

// A rectangle of c.
struct MatMulPart {
  int64_t row = 0, rows = 0;
  int64_t col = 0, cols = 0;
};

// Calls work(part, index) for all rectangles of CutOf at once. What is computed within is computed
// by the thread that does (SetMatMulThreads).
template <typename Work>
void ForEachPart(const Threads& threads, int64_t m, int64_t n, int64_t k, const Work& work) {
  if (m == 0 || n == 0) return;
  const MatMulCut cut = CutOf(m, n, k, threads.count());
  const int64_t across = (n + cut.cols - 1) / cut.cols;
  const int64_t down = (m + cut.rows - 1) / cut.rows;
  threads.Run(static_cast<int>(down * across), [&](int piece) {
    const int64_t row = piece / across * cut.rows;
    const int64_t col = piece % across * cut.cols;
    work(MatMulPart{row, std::min(cut.rows, m - row), col, std::min(cut.cols, n - col)}, piece);
  });
}

// c = op(a) op(b) + beta * c, each thread a part of c.
void MatMulOnThreads(const Threads& threads, const MatMulShape& shape, const float* a,
                     Transpose transpose_a, const float* b, Transpose transpose_b, float beta,
                     float* c);

}  // namespace weft
