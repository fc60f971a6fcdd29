// Matrix products of 16-bit elements, accumulated in single precision: of bf16 by oneDNN where the
// processor has units that are faster at it than at single precision, all others by OpenBLAS on
// blocks that are widened first. Used by one thread.
#pragma once
#include <memory>
#include <vector>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/cpu/kernels/matmul.h"
#include "worker/backend/device.h"
#include "worker/backend/processor.h"

namespace weft {

// The operands of c = op(a) op(b) + beta * c. a and b have one element type, 16 bits wide; c has
// the same, or float. beta is 0 or 1; c is rounded once; k is at least 1. Rows of b are as far
// apart as they are long; those of a, and of c with beta 0, may be further.
struct NarrowProduct {
  int64_t m = 0, n = 0, k = 0;  // c [m, n]; the products run over k
  View a, b, c;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  float beta = 0;
};

// By widening: every thread makes a part of c in blocks of its own, so that bits depend on the
// shape and the number of threads alone.
class WideningMatMul {
 public:
  // `threads` has to stay.
  explicit WideningMatMul(const Threads& threads);
  ~WideningMatMul();
  WideningMatMul(const WideningMatMul&) = delete;
  WideningMatMul& operator=(const WideningMatMul&) = delete;

  // Fails, before anything is written, if the machine lacks memory for the blocks: the first takes
  // it, whatever its shape, and no other allocates.
  BackendStatus Multiply(const NarrowProduct& product);

 private:
  int64_t RoomBytes() const;

  const Threads& threads_;
  int64_t edge_ = 1024;    // of a block
  float* room_ = nullptr;  // for three blocks of each thread
};

enum class Bf16Products {
  kOneDnn,  // where it has an implementation
  kWidened,
};

// oneDNN's for AMX, for AMD's units and those of Cooper Lake, which do twice what fp32's do.
// Intel's later ones are made for AMX and do half as much without (an Emerald Rapids whose host
// hides AMX: 154 GFLOP/s of bf16, 332 of fp32); processors without such units would emulate them.
Bf16Products Bf16ProductsOf(const ProcessorFeatures& features);

class DnnlMatMul;  // hides oneDNN's header

class NarrowMatMul {
 public:
  // `threads` has to stay.
  NarrowMatMul(const Threads& threads, Bf16Products bf16);
  ~NarrowMatMul();

  // Fails if the machine lacks memory, or where oneDNN does in the middle of a product.
  BackendStatus Multiply(const NarrowProduct& product);

 private:
  std::unique_ptr<DnnlMatMul> dnnl_;  // null: never asked
  WideningMatMul widening_;
};

// "oneDNN 2.6.3"
const char* NarrowMatMulVersion();

}  // namespace weft
