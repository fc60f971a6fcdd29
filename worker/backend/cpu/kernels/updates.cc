// Each update is a loop over plain pointers, in pieces on the device's threads. Constants are taken
// in double and rounded once; the decay is a subtrahend of the update, not a factor (1 - lr *
// weight_decay) on the parameter, whose rounding error would be the same for every parameter at
// every step and add up.
#include "worker/backend/cpu/kernels/updates.h"

#include <cmath>
#include <initializer_list>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/operands.h"

namespace weft {
namespace {

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

WEFT_CLONES void AdagradUpdate(const AdagradParameters& adagrad, double gradient_scale,
                               const float* gradient, float* param, float* sum, int64_t count) {
  const auto scale = static_cast<float>(gradient_scale);
  const auto decay = static_cast<float>(adagrad.weight_decay);
  const auto lr = static_cast<float>(adagrad.lr);
  const auto eps = static_cast<float>(adagrad.eps);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale + decay * param[i];
    const float s = sum[i] + g * g;
    sum[i] = s;
    param[i] -= lr * g / (std::sqrt(s) + eps);
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

class CpuUpdates final : public Updates {
 public:
  CpuUpdates(const Threads& threads, FirstFailure& failure)
      : threads_(threads), failure_(failure) {}

  void Adamw(const AdamwParameters& adamw, const AdamwSegment* segments, int64_t count) override {
    const AdamwSegment* const unfit = FirstUnfit(adamw, segments, count);
    if (unfit != nullptr) return void(failure_.Require(false, "Adamw", unfit->param));
    const double scale = ScaleOf(adamw.gradient_scale);
    if (std::isnan(scale)) return;
    for (const AdamwSegment* at = segments; at != segments + count; ++at) {
      ForElements(threads_, at->param, [&](int64_t first, int64_t size) {
        AdamwUpdate(adamw, at->weight_decay, scale, Floats(at->gradient) + first,
                    Floats(at->param) + first, Floats(at->exp_avg) + first,
                    Floats(at->exp_avg_sq) + first, size);
      });
      if (at->weight.data != nullptr) Convert(threads_, at->param, at->weight);
    }
  }
  void QuantisedAdamw(const AdamwParameters& adamw, double weight_decay, View gradient, View param,
                      const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq) override {
    if (!failure_.Require(FitsQuantisedAdamw(adamw, gradient, param, exp_avg, exp_avg_sq),
                          "QuantisedAdamw", param)) {
      return;
    }
    const double scale = ScaleOf(adamw.gradient_scale);
    if (std::isnan(scale)) return;
    const auto from = [](const QuantisedView& x, int64_t first) -> QuantisedMoment {
      return {Data<uint8_t>(x.codes) + first, Floats(x.scales) + first / kQuantisationBlock};
    };
    constexpr int64_t kCost = 4;  // two searches for the nearest code, beside the update
    threads_.ForEach(param.elements(), kQuantisationBlock, kCost, [&](int64_t first, int64_t size) {
      QuantisedAdamwUpdate(adamw, weight_decay, scale, Floats(gradient) + first,
                           Floats(param) + first, from(exp_avg, first), from(exp_avg_sq, first),
                           size);
    });
  }
  void Lion(const LionParameters& lion, View gradient, View param, View exp_avg) override {
    Update("Lion", lion.gradient_scale, param, {gradient, exp_avg},
           [&](double scale, int64_t first, int64_t count) {
             LionUpdate(lion, scale, Floats(gradient) + first, Floats(param) + first,
                        Floats(exp_avg) + first, count);
           });
  }
  void Adagrad(const AdagradParameters& adagrad, View gradient, View param, View sum) override {
    Update("Adagrad", adagrad.gradient_scale, param, {gradient, sum},
           [&](double scale, int64_t first, int64_t count) {
             AdagradUpdate(adagrad, scale, Floats(gradient) + first, Floats(param) + first,
                           Floats(sum) + first, count);
           });
  }
  void Sgd(double lr, double weight_decay, View gradient_scale, View gradient,
           View param) override {
    Update("Sgd", gradient_scale, param, {gradient},
           [&](double scale, int64_t first, int64_t count) {
             SgdUpdate(lr, weight_decay, scale, Floats(gradient) + first, Floats(param) + first,
                       count);
           });
  }
  void SgdMomentum(const MomentumParameters& sgd, View gradient, View param,
                   View momentum) override {
    Update("SgdMomentum", sgd.gradient_scale, param, {gradient, momentum},
           [&](double scale, int64_t first, int64_t count) {
             MomentumUpdate(sgd, scale, Floats(gradient) + first, Floats(param) + first,
                            Floats(momentum) + first, count);
           });
  }

 private:
  // Calls loop(scale, first, count) for pieces of `param` and as many elements of `others`, unless
  // they do not fit or the scale is not a number.
  template <typename Loop>
  void Update(const char* name, View gradient_scale, View param, std::initializer_list<View> others,
              const Loop& loop) {
    if (!failure_.Require(FitsUpdate(gradient_scale, param, others), name, param)) return;
    const double scale = ScaleOf(gradient_scale);
    if (std::isnan(scale)) return;
    ForElements(threads_, param, [&](int64_t first, int64_t count) { loop(scale, first, count); });
  }

  const Threads& threads_;
  FirstFailure& failure_;
};

}  // namespace

std::unique_ptr<Updates> MakeCpuUpdates(const Threads& threads, FirstFailure& failure) {
  return std::make_unique<CpuUpdates>(threads, failure);
}

}  // namespace weft
