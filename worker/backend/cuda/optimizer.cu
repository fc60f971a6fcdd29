// Parameter updates over a flat range, one launch each; constants and order of operations are those
// of cpu/optimizer.cc.
#include <cmath>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"

namespace weft {
namespace {

// gradient, param, exp_avg, exp_avg_sq -> param, exp_avg, exp_avg_sq
struct AdamwUpdate {
  float gradient_scale, beta1, beta2, rest1, rest2, step_size, eps, decay;
  __device__ void operator()(const float (&x)[4], float (&y)[3]) const {
    const float g = x[0] * gradient_scale;
    const float m = beta1 * x[2] + rest1 * g;
    const float v = beta2 * x[3] + rest2 * (g * g);
    y[0] = x[1] - (step_size * m / (sqrtf(v) + eps) + decay * x[1]);
    y[1] = m;
    y[2] = v;
  }
};

// gradient, param, exp_avg -> param, exp_avg
struct LionUpdate {
  float gradient_scale, beta1, beta2, rest1, rest2, lr, decay;
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[0] * gradient_scale;
    const float c = beta1 * x[2] + rest1 * g;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : c;
    y[0] = x[1] - (lr * sign + decay * x[1]);
    y[1] = beta2 * x[2] + rest2 * g;
  }
};

// gradient, param -> param
struct SgdUpdate {
  float step_size, decay;
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[1] - (step_size * x[0] + decay * x[1]);
  }
};

// gradient, param, momentum -> param, momentum
struct MomentumUpdate {
  float gradient_scale, decay, lr, kept, added, direct, carried;
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[0] * gradient_scale + decay * x[1];
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
      .gradient_scale = static_cast<float>(adamw.gradient_scale),
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
  const LionUpdate update = {.gradient_scale = static_cast<float>(lion.gradient_scale),
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

cudaError_t QueueSgd(const Queue& queue, double lr, double weight_decay, double gradient_scale,
                     View gradient, View param) {
  const SgdUpdate update = {static_cast<float>(lr * gradient_scale),
                            static_cast<float>(lr * weight_decay)};
  float* const p = Floats(param);
  return Map<float, 2, 1>(queue.stream, update, {{Floats(gradient), p}, {p}}, param.elements());
}

cudaError_t QueueSgdMomentum(const Queue& queue, const MomentumParameters& sgd, View gradient,
                             View param, View momentum) {
  const MomentumUpdate update = {.gradient_scale = static_cast<float>(sgd.gradient_scale),
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
