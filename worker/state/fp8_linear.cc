#include "worker/state/fp8_linear.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr DType kForwardType = DType::kE4m3;
constexpr DType kGradientType = DType::kE5m2;

}  // namespace

Fp8Codes::Fp8Codes(const Fp8Weights& weights, absl::string_view folder, Arena& arena) {
  const auto get = [&](absl::string_view name, int64_t rows, int64_t cols) {
    return arena.Get(absl::StrCat(folder, "/", name), rows, cols);
  };
  codes_ = get("fp8_weights", 1, weights.elements);
  transposed_ = get("fp8_weights_transposed", 1, weights.elements);
  scales_ = get("fp8_scales", weights.count, 1);
}

Fp8Weight Fp8Codes::Take(View weight) {
  CHECK(next_ + weight.elements() <= codes_.cols && next_scale_ < scales_.rows);
  const auto take = [&](View from, int64_t rows, int64_t cols) -> View {
    return {from.ColRange(next_, rows * cols).data, rows, cols, kForwardType};
  };
  const Fp8Weight kept = {.wide = weight,
                          .codes = take(codes_, weight.rows, weight.cols),
                          .transposed = take(transposed_, weight.cols, weight.rows),
                          .scale = scales_.RowRange(next_scale_++, 1)};
  next_ += weight.elements();
  return kept;
}

Fp8Linear::Fp8Linear(const Fp8Layers& layers, const Fp8Scratch& scratch, Arena& arena,
                     Device& device)
    : device_(device), layers_(layers) {
  CHECK(layers.any());
  input_ = arena.Get("work/fp8_input", 1, scratch.input);
  gradient_ = arena.Get("work/fp8_gradient", 1, scratch.gradient);
  gradient_transposed_ = arena.Get("work/fp8_gradient_transposed", 1, scratch.gradient);
  if (scratch.weight > 0) weight_ = arena.Get("work/fp8_weight", 1, scratch.weight);
  const View scales = arena.Get("work/fp8_scales", scratch.scales, 1);
  input_scale_ = scales.RowRange(0, 1);
  gradient_scale_ = scales.RowRange(1, 1);
  if (scratch.weight > 0) weight_scale_ = scales.RowRange(2, 1);
}

void Fp8Linear::Renew(const Fp8Weight& weight) {
  CHECK(weight.is_kept());
  device_.ToFp8(weight.wide, weight.codes, weight.transposed, weight.scale);
}

Fp8View Fp8Linear::Cast(View x) {
  const Fp8View input = {CodesIn(input_, x.rows, x.cols, kForwardType), input_scale_};
  device_.ToFp8(x, input.codes, View(), input.scale);
  return input;
}

Fp8View Fp8Linear::CastTransposed(View x) {
  const Fp8View input = {CodesIn(input_, x.cols, x.rows, kForwardType), input_scale_};
  device_.ToFp8(x, View(), input.codes, input.scale);
  return input;
}

void Fp8Linear::Forward(const Fp8Weight& weight, const Fp8View& x, float beta, View y) {
  if (weight.is_kept()) return device_.Fp8MatMul(x, {weight.codes, weight.scale}, beta, y);
  const Fp8View by = {CodesIn(weight_, weight.wide.rows, weight.wide.cols, kForwardType),
                      weight_scale_};
  device_.ToFp8(weight.wide, by.codes, View(), by.scale);
  device_.Fp8MatMul(x, by, beta, y);
}

void Fp8Linear::BackwardInput(const Fp8Weight& weight, View dy, float beta, View dx) {
  const Fp8View gradient = {CodesIn(gradient_, dy.rows, dy.cols, kGradientType), gradient_scale_};
  device_.ToFp8(dy, gradient.codes, View(), gradient.scale);
  MultiplyInput(weight, gradient, beta, dx);
}

void Fp8Linear::BackwardWeight(View dy, const Fp8View& x_transposed, View weight_gradient) {
  const Fp8View transposed = {CodesIn(gradient_transposed_, dy.cols, dy.rows, kGradientType),
                              gradient_scale_};
  device_.ToFp8(dy, View(), transposed.codes, transposed.scale);
  device_.Fp8MatMul(transposed, x_transposed, 1, weight_gradient);
}

Fp8Linear::Gradient Fp8Linear::CastGradient(View dy) {
  const Gradient gradient = {
      .codes = {CodesIn(gradient_, dy.rows, dy.cols, kGradientType), gradient_scale_},
      .transposed = {CodesIn(gradient_transposed_, dy.cols, dy.rows, kGradientType),
                     gradient_scale_}};
  device_.ToFp8(dy, gradient.codes.codes, gradient.transposed.codes, gradient_scale_);
  return gradient;
}

void Fp8Linear::Backward(const Fp8Weight& weight, View dy, const Fp8View& x_transposed, float beta,
                         View dx, View weight_gradient) {
  const Gradient gradient = CastGradient(dy);
  BackwardWeight(gradient, x_transposed, weight_gradient);
  BackwardInput(weight, gradient, beta, dx);
}

// Operands run along what is summed over: dy along the outputs, so the weight is transposed.
void Fp8Linear::MultiplyInput(const Fp8Weight& weight, const Fp8View& dy, float beta, View dx) {
  if (weight.is_kept()) return device_.Fp8MatMul(dy, {weight.transposed, weight.scale}, beta, dx);
  const Fp8View by = {CodesIn(weight_, weight.wide.cols, weight.wide.rows, kForwardType),
                      weight_scale_};
  device_.ToFp8(weight.wide, View(), by.codes, by.scale);
  device_.Fp8MatMul(dy, by, beta, dx);
}

}  // namespace weft
