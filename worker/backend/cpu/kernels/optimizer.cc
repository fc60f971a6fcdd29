// Parameter updates. Constants are taken in double and rounded once; the decay is a subtrahend of
// the update, not a factor (1 - lr * weight_decay) on the parameter, whose rounding error would be
// the same for every parameter at every step and add up.
#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {

WEFT_CLONES void AdamwUpdate(const AdamwParameters& adamw, double weight_decay,
                             double gradient_scale, const float* gradient, float* param,
                             float* exp_avg, float* exp_avg_sq, int64_t count) {
  const auto step = static_cast<double>(adamw.step);
  const double correction1 = 1.0 - std::pow(adamw.beta1, step);
  const double correction2 = 1.0 - std::pow(adamw.beta2, step);
  const auto scale = static_cast<float>(gradient_scale);
  const auto beta1 = static_cast<float>(adamw.beta1);
  const auto beta2 = static_cast<float>(adamw.beta2);
  const auto rest1 = static_cast<float>(1.0 - adamw.beta1);
  const auto rest2 = static_cast<float>(1.0 - adamw.beta2);
  // lr * (m / c1) / (sqrt(v / c2) + eps) = step_size * m / (sqrt(v) + eps * sqrt(c2))
  const auto step_size = static_cast<float>(adamw.lr * std::sqrt(correction2) / correction1);
  const auto eps = static_cast<float>(adamw.eps * std::sqrt(correction2));
  const auto decay = static_cast<float>(adamw.lr * weight_decay);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    const float m = beta1 * exp_avg[i] + rest1 * g;
    const float v = beta2 * exp_avg_sq[i] + rest2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] -= step_size * m / (std::sqrt(v) + eps) + decay * param[i];
  }
}

WEFT_CLONES void LionUpdate(const LionParameters& lion, double gradient_scale,
                            const float* gradient, float* param, float* exp_avg, int64_t count) {
  const auto scale = static_cast<float>(gradient_scale);
  const auto beta1 = static_cast<float>(lion.beta1);
  const auto beta2 = static_cast<float>(lion.beta2);
  const auto rest1 = static_cast<float>(1.0 - lion.beta1);
  const auto rest2 = static_cast<float>(1.0 - lion.beta2);
  const auto lr = static_cast<float>(lion.lr);
  const auto decay = static_cast<float>(lion.lr * lion.weight_decay);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    const float m = exp_avg[i];
    const float c = beta1 * m + rest1 * g;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : c;
    exp_avg[i] = beta2 * m + rest2 * g;
    param[i] -= lr * sign + decay * param[i];
  }
}

WEFT_CLONES void SgdUpdate(double lr, double weight_decay, double gradient_scale,
                           const float* gradient, float* param, int64_t count) {
  const auto step_size = static_cast<float>(lr * gradient_scale);
  const auto decay = static_cast<float>(lr * weight_decay);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) param[i] -= step_size * gradient[i] + decay * param[i];
}

WEFT_CLONES void MomentumUpdate(const MomentumParameters& sgd, double gradient_scale,
                                const float* gradient, float* param, float* momentum,
                                int64_t count) {
  const auto scale = static_cast<float>(gradient_scale);
  const auto decay = static_cast<float>(sgd.weight_decay);
  const auto lr = static_cast<float>(sgd.lr);
  const auto kept = static_cast<float>(sgd.first ? 0.0 : sgd.momentum);
  const auto added = static_cast<float>(sgd.first ? 1.0 : 1.0 - sgd.dampening);
  // These are the factors of gradient and momentum in the update.
  const float direct = sgd.nesterov ? 1.0F : 0.0F;
  const float carried = sgd.nesterov ? static_cast<float>(sgd.momentum) : 1.0F;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale + decay * param[i];
    const float m = kept * momentum[i] + added * g;
    momentum[i] = m;
    param[i] -= lr * (direct * g + carried * m);
  }
}

}  // namespace weft
