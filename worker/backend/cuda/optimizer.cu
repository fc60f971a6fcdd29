// Parameter updates over a flat range, one launch each; constants and order of operations are those
// of cpu/optimizer.cc.
#include <cmath>

#include "worker/backend/cuda/gradient_scale.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"

namespace weft {
namespace {

// gradient, param, exp_avg, exp_avg_sq -> param, exp_avg, exp_avg_sq
struct AdamwUpdate {
  GradientScale scale;
  float beta1, beta2, rest1, rest2, step_size, eps, decay;
  __device__ bool Begin() { return scale.Load(); }
  __device__ void operator()(const float (&x)[4], float (&y)[3]) const {
    const float g = x[0] * static_cast<float>(scale.value);
    const float m = beta1 * x[2] + rest1 * g;
    const float v = beta2 * x[3] + rest2 * (g * g);
    y[0] = x[1] - (step_size * m / (sqrtf(v) + eps) + decay * x[1]);
    y[1] = m;
    y[2] = v;
  }
};

// gradient, param, exp_avg -> param, exp_avg
struct LionUpdate {
  GradientScale scale;
  float beta1, beta2, rest1, rest2, lr, decay;
  __device__ bool Begin() { return scale.Load(); }
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[0] * static_cast<float>(scale.value);
    const float c = beta1 * x[2] + rest1 * g;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : c;
    y[0] = x[1] - (lr * sign + decay * x[1]);
    y[1] = beta2 * x[2] + rest2 * g;
  }
};

// gradient, param -> param
struct SgdUpdate {
  GradientScale scale;
  double lr;
  float decay;
  float step_size;
  __device__ bool Begin() {
    const bool goes_on = scale.Load();
    step_size = static_cast<float>(lr * scale.value);
    return goes_on;
  }
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[1] - (step_size * x[0] + decay * x[1]);
  }
};

// gradient, param, momentum -> param, momentum
struct MomentumUpdate {
  GradientScale scale;
  float decay, lr, kept, added, direct, carried;
  __device__ bool Begin() { return scale.Load(); }
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[0] * static_cast<float>(scale.value) + decay * x[1];
    const float m = kept * x[2] + added * g;
    y[0] = x[1] - lr * (direct * g + carried * m);
    y[1] = m;
  }
};

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

}  // namespace

cudaError_t QueueAdamw(const Queue& queue, const AdamwParameters& adamw, View gradient, View param,
                       View exp_avg, View exp_avg_sq) {
  const auto step = static_cast<double>(adamw.step);
  const double correction1 = 1.0 - std::pow(adamw.beta1, step);
  const double correction2 = 1.0 - std::pow(adamw.beta2, step);
  const AdamwUpdate update = {
      .scale = ScaleAt(adamw.gradient_scale),
      .beta1 = static_cast<float>(adamw.beta1),
      .beta2 = static_cast<float>(adamw.beta2),
      .rest1 = static_cast<float>(1.0 - adamw.beta1),
      .rest2 = static_cast<float>(1.0 - adamw.beta2),
      // lr * (m / c1) / (sqrt(v / c2) + eps) = step_size * m / (sqrt(v) + eps * sqrt(c2))
      .step_size = static_cast<float>(adamw.lr * std::sqrt(correction2) / correction1),
      .eps = static_cast<float>(adamw.eps * std::sqrt(correction2)),
      .decay = static_cast<float>(adamw.lr * adamw.weight_decay)};
  float* const p = Floats(param);
  float* const m = Floats(exp_avg);
  float* const v = Floats(exp_avg_sq);
  return Map<float, 4, 3>(queue.stream, update, {{Floats(gradient), p, m, v}, {p, m, v}},
                          param.elements());
}

cudaError_t QueueLion(const Queue& queue, const LionParameters& lion, View gradient, View param,
                      View exp_avg) {
  const LionUpdate update = {.scale = ScaleAt(lion.gradient_scale),
                             .beta1 = static_cast<float>(lion.beta1),
                             .beta2 = static_cast<float>(lion.beta2),
                             .rest1 = static_cast<float>(1.0 - lion.beta1),
                             .rest2 = static_cast<float>(1.0 - lion.beta2),
                             .lr = static_cast<float>(lion.lr),
                             .decay = static_cast<float>(lion.lr * lion.weight_decay)};
  float* const p = Floats(param);
  float* const m = Floats(exp_avg);
  return Map<float, 3, 2>(queue.stream, update, {{Floats(gradient), p, m}, {p, m}},
                          param.elements());
}

cudaError_t QueueSgd(const Queue& queue, double lr, double weight_decay, View gradient_scale,
                     View gradient, View param) {
  const SgdUpdate update = {.scale = ScaleAt(gradient_scale),
                            .lr = lr,
                            .decay = static_cast<float>(lr * weight_decay),
                            .step_size = 0};
  float* const p = Floats(param);
  return Map<float, 2, 1>(queue.stream, update, {{Floats(gradient), p}, {p}}, param.elements());
}

cudaError_t QueueSgdMomentum(const Queue& queue, const MomentumParameters& sgd, View gradient,
                             View param, View momentum) {
  const MomentumUpdate update = {.scale = ScaleAt(sgd.gradient_scale),
                                 .decay = static_cast<float>(sgd.weight_decay),
                                 .lr = static_cast<float>(sgd.lr),
                                 .kept = static_cast<float>(sgd.first ? 0.0 : sgd.momentum),
                                 .added = static_cast<float>(sgd.first ? 1.0 : 1.0 - sgd.dampening),
                                 .direct = sgd.nesterov ? 1.0F : 0.0F,
                                 .carried = sgd.nesterov ? static_cast<float>(sgd.momentum) : 1.0F};
  float* const p = Floats(param);
  float* const m = Floats(momentum);
  return Map<float, 3, 2>(queue.stream, update, {{Floats(gradient), p, m}, {p, m}},
                          param.elements());
}

}  // namespace weft
