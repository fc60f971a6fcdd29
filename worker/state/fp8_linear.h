// Fp8Linear: a block's linear layers in 8-bit floating point, as plan/spec/fp8.h says it. Codes of
// operands are made just before their products, in buffers that all of a stage's blocks share:
// those of an input by its caller, for all layers that take it, the others by each product. What a
// product gives depends on its operands alone, so recomputed passes, resumed runs and other orders
// of microbatches give the same bits.
//
// Evaluation is in bf16 (SetOn): it judges the weights, as they will be used.
// Used by the trainer's thread.
#pragma once
#include "plan/spec/fp8.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"

namespace weft {

class Fp8Linear {
 public:
  // Asks the arena for its buffers "work/fp8_...". REQUIRES: `layers` has any, of which `scratch`
  // is the size.
  Fp8Linear(const Fp8Layers& layers, const Fp8Scratch& scratch, Arena& arena, Device& device);

  const Fp8Layers& layers() const { return layers_; }
  bool is_on() const { return is_on_; }
  void SetOn(bool on) { is_on_ = on; }

  // Return the codes of a layer's input x [N, in], bf16: Cast as Forward takes them,
  // CastTransposed, transposed, as the gradients of weights take them. Valid until the next call of
  // either.
  Fp8View Cast(View x);
  Fp8View CastTransposed(View x);

  // The products take weight [out, in], y and dy [N, out], in bf16; weight_gradient is f32.
  // y = x weight^T
  void Forward(View weight, const Fp8View& x, View y);
  // dx = beta * dx + dy weight, beta 0 or 1
  void BackwardInput(View weight, View dy, float beta, View dx);
  // weight_gradient += dy^T x
  void BackwardWeight(View dy, const Fp8View& x_transposed, View weight_gradient);
  // The latter two; dy is read once for both.
  void Backward(View weight, View dy, const Fp8View& x_transposed, float beta, View dx,
                View weight_gradient);

 private:
  // Codes of [rows, cols] in a buffer.
  static View CodesIn(View buffer, int64_t rows, int64_t cols, DType type) {
    return {buffer.data, rows, cols, type};
  }
  void MultiplyInput(View weight, const Fp8View& dy, float beta, View dx);

  Device& device_;
  const Fp8Layers layers_;
  bool is_on_ = true;
  View input_, gradient_, gradient_transposed_, weight_;  // one row of codes
  View input_scale_, gradient_scale_, weight_scale_;      // [1, 1]
};

}  // namespace weft
