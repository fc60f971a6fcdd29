#include "worker/backend/cpu/matmul.h"

#include <cblas.h>

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

}  // namespace weft
