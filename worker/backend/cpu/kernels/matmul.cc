#include "worker/backend/cpu/kernels/matmul.h"

#include <cblas.h>

#include <algorithm>

namespace weft {
namespace {

CBLAS_TRANSPOSE Blas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

}  // namespace

void SetMatMulThreads(int threads) {
  openblas_set_num_threads(threads);
}

void MatMulStrided(const MatMulShape& shape, float alpha, const float* a, Transpose transpose_a,
                   const float* b, Transpose transpose_b, float beta, float* c) {
  const auto blas_int = [](int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, Blas(transpose_a), Blas(transpose_b), blas_int(shape.m),
              blas_int(shape.n), blas_int(shape.k), alpha, a, blas_int(shape.lda), b,
              blas_int(shape.ldb), beta, c, blas_int(shape.ldc));
}

void MatMulOnThreads(const Threads& threads, const MatMulShape& shape, const float* a,
                     Transpose transpose_a, const float* b, Transpose transpose_b, float beta,
                     float* c) {
  ForEachPart(threads, shape.m, shape.n, shape.k, [&](const MatMulPart& part, int) {
    MatMulShape own = shape;
    own.m = part.rows;
    own.n = part.cols;
    const int64_t a_at = transpose_a == Transpose::kYes ? part.row : part.row * shape.lda;
    const int64_t b_at = transpose_b == Transpose::kYes ? part.col * shape.ldb : part.col;
    MatMulStrided(own, 1, a + a_at, transpose_a, b + b_at, transpose_b, beta,
                  c + part.row * shape.ldc + part.col);
  });
}

MatMulCut CutOf(int64_t m, int64_t n, int64_t k, int threads) {
  constexpr int64_t kLeastProducts = 1 << 18;  // below it waking a thread costs more
  constexpr int64_t kUnit = 16;
  constexpr int64_t kReading = 24;  // as many products take the time that an element of a, b does
  MatMulCut best = {m, n};
  if (m * n < 1 || m * n * k < kLeastProducts) return best;
  const auto side = [](int64_t size, int64_t pieces) {
    return std::min(size, ((size + pieces - 1) / pieces + kUnit - 1) / kUnit * kUnit);
  };
  const auto cost = [](const MatMulCut& cut) {
    return cut.rows * cut.cols + kReading * (cut.rows + cut.cols);
  };
  for (int64_t down = 1; down <= threads; ++down) {
    const MatMulCut cut = {side(m, down), side(n, threads / down)};
    if (cost(cut) < cost(best)) best = cut;
  }
  return best;
}

}  // namespace weft
