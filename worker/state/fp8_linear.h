// Fp8Linear: a block's linear layers in 8-bit floating point, as plan/spec/fp8.h says it. Codes of
// operands are made just before their products, in buffers that all of a stage's blocks share:
// those of an input by its caller, for all layers that take it, those of a gradient by each
// product. Codes of a weight are made once a step, before its first pass, where memory has room for
// them (KeepsFp8Weights), else by each product. What a product gives depends on its operands alone,
// so recomputed passes, resumed runs and other orders of microbatches give the same bits.
//
// Evaluation is in bf16 (SetOn): it judges the weights, as they will be used.
// Used by the trainer's thread.
#pragma once
#include <cstdint>

#include "absl/strings/string_view.h"
#include "plan/spec/fp8.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"

namespace weft {

// A weight [out, in], bf16, with its codes of the step; without data where they are not kept.
struct Fp8Weight {
  View wide;
  View codes;       // [out, in]
  View transposed;  // [in, out]
  View scale;       // [1, 1], of both

  bool is_kept() const { return codes.data != nullptr; }
};

// Hands out the buffers "<folder>/fp8_..." of a block, in which its weights' codes are kept, one
// weight after the other.
class Fp8Codes {
 public:
  // Asks the arena for them. REQUIRES: `weights` has any.
  Fp8Codes(const Fp8Weights& weights, absl::string_view folder, Arena& arena);

  Fp8Weight Take(View weight);
  // Whether all of them are taken.
  bool is_used_up() const { return next_scale_ == scales_.rows; }

 private:
  View codes_, transposed_;  // one row
  View scales_;              // [count, 1]
  int64_t next_ = 0, next_scale_ = 0;
};

class Fp8Linear {
 public:
  // Asks the arena for its buffers "work/fp8_...". REQUIRES: `layers` has any, of which `scratch`
  // is the size.
  Fp8Linear(const Fp8Layers& layers, const Fp8Scratch& scratch, Arena& arena, Device& device);

  const Fp8Layers& layers() const { return layers_; }
  bool is_on() const { return is_on_; }
  void SetOn(bool on) { is_on_ = on; }

  // After the weight has changed. REQUIRES: its codes are kept.
  void Renew(const Fp8Weight& weight);

  // Return the codes of a layer's input x [N, in], bf16: Cast as Forward takes them,
  // CastTransposed, transposed, as the gradients of weights take them. Valid until the next call of
  // either.
  Fp8View Cast(View x);
  Fp8View CastTransposed(View x);

  // A gradient dy [N, out] as the two products of a backward pass take it.
  struct Gradient {
    Fp8View codes, transposed;
  };
  // Reads dy once for both. Valid until the next call but CastTransposed and the two below.
  Gradient CastGradient(View dy);
  void BackwardInput(const Fp8Weight& weight, const Gradient& dy, float beta, View dx) {
    MultiplyInput(weight, dy.codes, beta, dx);
  }
  void BackwardWeight(const Gradient& dy, const Fp8View& x_transposed, View weight_gradient) {
    device_.Fp8MatMul(dy.transposed, x_transposed, 1, weight_gradient);
  }

  // The products take y and dy [N, out], in bf16; weight_gradient is f32.
  // y = beta * y + x weight^T, beta 0 or 1
  void Forward(const Fp8Weight& weight, const Fp8View& x, float beta, View y);
  // dx = beta * dx + dy weight, beta 0 or 1
  void BackwardInput(const Fp8Weight& weight, View dy, float beta, View dx);
  // weight_gradient += dy^T x
  void BackwardWeight(View dy, const Fp8View& x_transposed, View weight_gradient);
  // The latter two; dy is read once for both.
  void Backward(const Fp8Weight& weight, View dy, const Fp8View& x_transposed, float beta, View dx,
                View weight_gradient);

 private:
  // Codes of [rows, cols] in a buffer.
  static View CodesIn(View buffer, int64_t rows, int64_t cols, DType type) {
    return {buffer.data, rows, cols, type};
  }
  void MultiplyInput(const Fp8Weight& weight, const Fp8View& dy, float beta, View dx);

  Device& device_;
  const Fp8Layers layers_;
  bool is_on_ = true;
  View input_, gradient_, gradient_transposed_;       // one row of codes
  View weight_;                                       // the same; null where weights are kept
  View input_scale_, gradient_scale_, weight_scale_;  // [1, 1]
};

}  // namespace weft
