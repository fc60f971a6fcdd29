// Parameter updates: AdamW of many arrays at once, others of one by one launch. Constants and order
// of operations are those of cpu/kernels/updates.cc.
#include <cmath>
#include <initializer_list>

#include "worker/backend/cuda/kernels/gradient_scale.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/map.h"
#include "worker/backend/cuda/kernels/segments.h"
#include "worker/backend/cuda/kernels/updates.h"
#include "worker/backend/cuda/runtime/cuda_status.h"

namespace weft {
namespace {

struct AdamwUpdate {
  GradientScale scale;
  float beta1, beta2, rest1, rest2, step_size, eps;
  __device__ __forceinline__ void operator()(float gradient, float decay, float& param,
                                             float& exp_avg, float& exp_avg_sq) const {
    const float g = gradient * static_cast<float>(scale.value);
    const float m = beta1 * exp_avg + rest1 * g;
    const float v = beta2 * exp_avg_sq + rest2 * (g * g);
    param = param - (step_size * m / (sqrtf(v) + eps) + decay * param);
    exp_avg = m;
    exp_avg_sq = v;
  }
};

struct AdamwArrays {
  const float* gradient;
  float* param;
  float* exp_avg;
  float* exp_avg_sq;
  void* weight;  // null: none
  int64_t count;
  float decay;
  bool is_wide;  // all may be accessed by four elements
};

// Updates elements [first, first + count), kWidth by each thread at a time. T: the weight's type.
template <typename T, int kWidth>
__device__ __forceinline__ void UpdateChunk(const AdamwUpdate& update, const AdamwArrays& arrays,
                                            int64_t first, int64_t count) {
  using Floats = Pack<float, kWidth>;
  for (int64_t i = threadIdx.x; i < count / kWidth; i += kChunkThreads) {
    const int64_t at = first / kWidth + i;
    const Floats gradient = reinterpret_cast<const Floats*>(arrays.gradient)[at];
    Floats param = reinterpret_cast<const Floats*>(arrays.param)[at];
    Floats exp_avg = reinterpret_cast<const Floats*>(arrays.exp_avg)[at];
    Floats exp_avg_sq = reinterpret_cast<const Floats*>(arrays.exp_avg_sq)[at];
    Pack<T, kWidth> weight;
    for (int e = 0; e < kWidth; ++e) {
      update(gradient.at[e], arrays.decay, param.at[e], exp_avg.at[e], exp_avg_sq.at[e]);
      weight.at[e] = FromFloat<T>(param.at[e]);
    }
    reinterpret_cast<Floats*>(arrays.param)[at] = param;
    reinterpret_cast<Floats*>(arrays.exp_avg)[at] = exp_avg;
    reinterpret_cast<Floats*>(arrays.exp_avg_sq)[at] = exp_avg_sq;
    if (arrays.weight != nullptr) static_cast<Pack<T, kWidth>*>(arrays.weight)[at] = weight;
  }
}

template <typename T>
__global__ void __launch_bounds__(kChunkThreads)
    AdamwKernel(AdamwUpdate update, const __grid_constant__ SegmentTable<AdamwArrays> table) {
  if (!update.scale.Load()) return;
  WithChunk(table, blockIdx.x, [&](const AdamwArrays& arrays, int64_t first, int64_t count) {
    if (arrays.is_wide) {
      UpdateChunk<T, 4>(update, arrays, first, count);
    } else {
      UpdateChunk<T, 1>(update, arrays, first, count);
    }
  });
}
static_assert(sizeof(AdamwUpdate) + sizeof(SegmentTable<AdamwArrays>) <= kParameterBytes);

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

// gradient, param, sum -> param, sum
struct AdagradUpdate {
  GradientScale scale;
  float decay, lr, eps;
  __device__ bool Begin() { return scale.Load(); }
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[0] * static_cast<float>(scale.value) + decay * x[1];
    const float s = x[2] + g * g;
    y[0] = x[1] - lr * g / (sqrtf(s) + eps);
    y[1] = s;
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

AdamwArrays ArraysOf(const AdamwSegment& segment, float decay) {
  const int64_t count = segment.param.elements();
  const bool is_wide = count % 4 == 0 && IsWide(segment.gradient.data) &&
                       IsWide(segment.param.data) && IsWide(segment.exp_avg.data) &&
                       IsWide(segment.exp_avg_sq.data) &&
                       reinterpret_cast<uintptr_t>(segment.weight.data) % 8 == 0;
  return {.gradient = Floats(segment.gradient),
          .param = Floats(segment.param),
          .exp_avg = Floats(segment.exp_avg),
          .exp_avg_sq = Floats(segment.exp_avg_sq),
          .weight = segment.weight.data,
          .count = count,
          .decay = decay,
          .is_wide = is_wide};
}

cudaError_t QueueAdamw(const Queue& queue, const AdamwParameters& adamw,
                       const AdamwSegment* segments, int64_t count) {
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
      .eps = static_cast<float>(adamw.eps * std::sqrt(correction2))};
  const auto arrays_of = [&](int64_t i) {
    return ArraysOf(segments[i], static_cast<float>(adamw.lr * segments[i].weight_decay));
  };
  return WithType(WeightTypeOf(segments, count), [&](auto weight) {
    return ForEachTable<AdamwArrays>(count, arrays_of, [&](const SegmentTable<AdamwArrays>& table) {
      return Launch(AdamwKernel<decltype(weight)>,
                    {.blocks = table.chunks, .threads = kChunkThreads}, queue.stream, update,
                    table);
    });
  });
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

cudaError_t QueueAdagrad(const Queue& queue, const AdagradParameters& adagrad, View gradient,
                         View param, View sum) {
  const AdagradUpdate update = {.scale = ScaleAt(adagrad.gradient_scale),
                                .decay = static_cast<float>(adagrad.weight_decay),
                                .lr = static_cast<float>(adagrad.lr),
                                .eps = static_cast<float>(adagrad.eps)};
  float* const p = Floats(param);
  float* const s = Floats(sum);
  return Map<float, 3, 2>(queue.stream, update, {{Floats(gradient), p, s}, {p, s}},
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

class CudaUpdates final : public Updates {
 public:
  CudaUpdates(const Queue& queue, FirstFailure& failure) : queue_(queue), failure_(failure) {}

  void Adamw(const AdamwParameters& adamw, const AdamwSegment* segments, int64_t count) override {
    const AdamwSegment* const unfit = FirstUnfit(adamw, segments, count);
    if (unfit != nullptr) return void(failure_.Require(false, "Adamw", unfit->param));
    KeepFailure(QueueAdamw(queue_, adamw, segments, count), "Adamw", failure_);
  }
  void QuantisedAdamw(const AdamwParameters& adamw, double weight_decay, View gradient, View param,
                      const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq) override {
    if (!failure_.Require(FitsQuantisedAdamw(adamw, gradient, param, exp_avg, exp_avg_sq),
                          "QuantisedAdamw", param)) {
      return;
    }
    KeepFailure(
        QueueQuantisedAdamw(queue_, adamw, weight_decay, gradient, param, exp_avg, exp_avg_sq),
        "QuantisedAdamw", failure_);
  }
  void Lion(const LionParameters& lion, View gradient, View param, View exp_avg) override {
    if (!Fits("Lion", lion.gradient_scale, param, {gradient, exp_avg})) return;
    KeepFailure(QueueLion(queue_, lion, gradient, param, exp_avg), "Lion", failure_);
  }
  void Adagrad(const AdagradParameters& adagrad, View gradient, View param, View sum) override {
    if (!Fits("Adagrad", adagrad.gradient_scale, param, {gradient, sum})) return;
    KeepFailure(QueueAdagrad(queue_, adagrad, gradient, param, sum), "Adagrad", failure_);
  }
  void Sgd(double lr, double weight_decay, View gradient_scale, View gradient,
           View param) override {
    if (!Fits("Sgd", gradient_scale, param, {gradient})) return;
    KeepFailure(QueueSgd(queue_, lr, weight_decay, gradient_scale, gradient, param), "Sgd",
                failure_);
  }
  void SgdMomentum(const MomentumParameters& sgd, View gradient, View param,
                   View momentum) override {
    if (!Fits("SgdMomentum", sgd.gradient_scale, param, {gradient, momentum})) return;
    KeepFailure(QueueSgdMomentum(queue_, sgd, gradient, param, momentum), "SgdMomentum", failure_);
  }

 private:
  bool Fits(const char* name, View gradient_scale, View param, std::initializer_list<View> others) {
    return failure_.Require(FitsUpdate(gradient_scale, param, others), name, param);
  }

  const Queue& queue_;
  FirstFailure& failure_;
};

}  // namespace

std::unique_ptr<Updates> MakeCudaUpdates(const Queue& queue, FirstFailure& failure) {
  return std::make_unique<CudaUpdates>(queue, failure);
}

}  // namespace weft
