// Matrix products of 16-bit elements, accumulated in single precision: bf16 by oneDNN wherever it
// has an implementation for this machine (AMX, AVX-512), everything else by OpenBLAS on blocks that
// are widened first. Which one is found out at run time. Used by one thread.
#pragma once
#include <memory>
#include <vector>

#include "worker/backend/cpu/matmul.h"
#include "worker/backend/device.h"

namespace weft {

// The operands of c = op(a) op(b) + beta * c. a and b have one element type, 16 bits wide; c has
// the same, or float. beta is 0 or 1; c is rounded once. Rows are as far apart as they are long.
struct NarrowProduct {
  int64_t m = 0, n = 0, k = 0;  // c [m, n]; the products run over k
  View a, b, c;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  float beta = 0;
};

class DnnlMatMul;  // hides oneDNN's header

class NarrowMatMul {
 public:
  // kBlocks never asks oneDNN: for tests, and what machines without AVX-512 do.
  enum class By { kBest, kBlocks };
  explicit NarrowMatMul(By by = By::kBest);
  ~NarrowMatMul();

  // Fails only where oneDNN does in the middle of a product.
  BackendStatus Multiply(const NarrowProduct& product);

 private:
  void MultiplyInBlocks(const NarrowProduct& product);

  std::unique_ptr<DnnlMatMul> dnnl_;  // null: never asked
  std::vector<float> a_, b_, c_;      // blocks in single precision
};

// "oneDNN 2.6.3"
const char* NarrowMatMulVersion();

}  // namespace weft
