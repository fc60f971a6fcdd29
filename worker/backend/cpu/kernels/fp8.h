// Device::ToFp8 and Device::Fp8MatMul on the CPU, which define them. No speed is gained: numbers
// are made wide, block by block, and multiplied in single precision by OpenBLAS.
#pragma once
#include <vector>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/device.h"

namespace weft {

// REQUIRES: FitsToFp8.
void QuantiseToFp8(const Threads& threads, View x, View codes, View transposed, View scale);

// Used by one thread.
class Fp8Products {
 public:
  // REQUIRES: FitsFp8MatMul.
  void Multiply(const Fp8View& a, const Fp8View& b, float beta, View c);

 private:
  std::vector<float> a_, b_, c_;  // blocks in single precision
};

}  // namespace weft
