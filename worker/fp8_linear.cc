#include "worker/fp8_linear.h"

#include "plan/errors.h"

namespace weft {
namespace {

constexpr DType kForwardType = DType::kE4m3;
constexpr DType kGradientType = DType::kE5m2;

}  // namespace

Fp8Linear::Fp8Linear(const Fp8Layers& layers, const Fp8Scratch& scratch, Arena& arena,
                     Device& device)
    : device_(device), layers_(layers) {
  CHECK(layers.any());
  input_ = arena.Get("work/fp8_input", 1, scratch.input);
  gradient_ = arena.Get("work/fp8_gradient", 1, scratch.gradient);
  gradient_transposed_ = arena.Get("work/fp8_gradient_transposed", 1, scratch.gradient);
  weight_ = arena.Get("work/fp8_weight", 1, scratch.weight);
  const View scales = arena.Get("work/fp8_scales", scratch.scales(), 1);
  input_scale_ = scales.RowRange(0, 1);
  gradient_scale_ = scales.RowRange(1, 1);
  weight_scales_ = scales.RowRange(2, scratch.weights);
  has_scale_.resize(static_cast<size_t>(scratch.weights));
}

void Fp8Linear::Begin(bool is_on) {
  is_on_ = is_on;
  has_scale_.assign(has_scale_.size(), false);
}

Fp8View Fp8Linear::CastWeight(const Weight& weight, Transpose transpose) {
  const View scale = weight_scales_.RowRange(weight.number, 1);
  const auto at = static_cast<size_t>(weight.number);
  const auto from = has_scale_[at] ? Fp8ScaleFrom::kEarlierCast : Fp8ScaleFrom::kTensor;
  has_scale_[at] = true;
  const int64_t rows = weight.view.rows;
  const int64_t cols = weight.view.cols;
  const bool flips = transpose == Transpose::kYes;
  const View codes = CodesIn(weight_, flips ? cols : rows, flips ? rows : cols, kForwardType);
  device_.ToFp8(weight.view, flips ? View() : codes, flips ? codes : View(), scale, from);
  return {codes, scale};
}

Fp8View Fp8Linear::Cast(View x) {
  const Fp8View input = {CodesIn(input_, x.rows, x.cols, kForwardType), input_scale_};
  device_.ToFp8(x, input.codes, View(), input.scale, Fp8ScaleFrom::kTensor);
  return input;
}

Fp8View Fp8Linear::CastTransposed(View x) {
  const Fp8View input = {CodesIn(input_, x.cols, x.rows, kForwardType), input_scale_};
  device_.ToFp8(x, View(), input.codes, input.scale, Fp8ScaleFrom::kTensor);
  return input;
}

void Fp8Linear::Forward(const Weight& weight, const Fp8View& x, View y) {
  device_.Fp8MatMul(x, CastWeight(weight, Transpose::kNo), 0, y);
}

void Fp8Linear::BackwardInput(const Weight& weight, View dy, float beta, View dx) {
  const Fp8View gradient = {CodesIn(gradient_, dy.rows, dy.cols, kGradientType), gradient_scale_};
  device_.ToFp8(dy, gradient.codes, View(), gradient.scale, Fp8ScaleFrom::kTensor);
  MultiplyInput(weight, gradient, beta, dx);
}

void Fp8Linear::BackwardWeight(View dy, const Fp8View& x_transposed, View weight_gradient) {
  const Fp8View transposed = {CodesIn(gradient_transposed_, dy.cols, dy.rows, kGradientType),
                              gradient_scale_};
  device_.ToFp8(dy, View(), transposed.codes, transposed.scale, Fp8ScaleFrom::kTensor);
  device_.Fp8MatMul(transposed, x_transposed, 1, weight_gradient);
}

void Fp8Linear::Backward(const Weight& weight, View dy, const Fp8View& x_transposed, float beta,
                         View dx, View weight_gradient) {
  const Fp8View gradient = {CodesIn(gradient_, dy.rows, dy.cols, kGradientType), gradient_scale_};
  const Fp8View transposed = {CodesIn(gradient_transposed_, dy.cols, dy.rows, kGradientType),
                              gradient_scale_};
  device_.ToFp8(dy, gradient.codes, transposed.codes, gradient.scale, Fp8ScaleFrom::kTensor);
  device_.Fp8MatMul(transposed, x_transposed, 1, weight_gradient);
  MultiplyInput(weight, gradient, beta, dx);
}

// Operands run along what is summed over: dy along the outputs, so the weight is transposed.
void Fp8Linear::MultiplyInput(const Weight& weight, const Fp8View& dy, float beta, View dx) {
  device_.Fp8MatMul(dy, CastWeight(weight, Transpose::kYes), beta, dx);
}

}  // namespace weft
