// Numerics says how numbers are kept and made: beside model, batch and layout, the list of a
// worker's buffers depends on it. Pure values.
#pragma once
#include <cstdint>

#include "plan/spec/optimizer.h"
#include "plan/spec/precision.h"

namespace weft {

// A buffer's elements have one of these types. kUint8: states quantised in blocks, codes of 8-bit
// floats. kFp64: totals.
enum class ElementType { kFp32, kInt32, kBf16, kFp16, kUint8, kFp64 };
int64_t ElementBytes(ElementType type);

struct Numerics {
  Precision precision = Precision::kFp32;
  OptimizerStates optimizer = OptimizerStates::kTwoMoments;
  ReduceDtype reduce_dtype = ReduceDtype::kFp32;
  bool cudnn_attention = false;  // the device may compute attention by cuDNN, in more scratch
  int threads = 1;  // of the device, a CPU: each computes attention in scratch of its own

  // Returns the type of weights and activations; gradients of weights, statistics and optimizer
  // states are fp32.
  ElementType compute() const;
  // Weights of 16 bits are rounded copies of fp32 ones, which the optimizer works on.
  bool has_master_weights() const { return compute() != ElementType::kFp32; }
  // Gradients are rounded to 16 bits before they are summed over the data group.
  bool narrows_sums() const { return reduce_dtype != ReduceDtype::kFp32; }
};

}  // namespace weft
