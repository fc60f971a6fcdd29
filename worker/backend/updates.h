// Updates: what the optimizers do to parameters, of one array or of several at once, each with its
// formula. An optimizer that needs sums over whole tensors between two passes has an interface of
// its own (adafactor_steps.h). A Device owns both; what they do is queued with its operations, and
// a failure shows where theirs do. The CPU's are the definition.
//
// Each update has a `gradient_scale` [1, 1], kF64, on the device, by which the gradient is
// multiplied first; no data: 1. If it is not a number, the update changes nothing.
//
// This header crosses a shared-object boundary, as device.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "worker/backend/device.h"
#include "worker/backend/operands.h"

namespace weft {

// Raised with every change of this header; a part of kBackendAbiVersion.
inline constexpr int kUpdatesVersion = 2;

// AdamW (Loshchilov & Hutter, arXiv:1711.05101). Decay is decoupled: p -= lr * weight_decay * p.
struct AdamwParameters {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  View gradient_scale = {};  // as GradientScale leaves it
  int64_t step = 0;          // counts from 1, for bias correction
};

// One of the arrays that an update of AdamW goes over: n elements, each view [1, n], f32.
struct AdamwSegment {
  View gradient;
  View param;
  View exp_avg;
  View exp_avg_sq;
  View weight = {};  // of 16 bits: becomes param, rounded. No data: there is none
  double weight_decay = 0;
};

// Lion (Chen et al., arXiv:2302.06675, program 1): the sign of an average of moment and gradient,
// beta1 to 1 - beta1; the moment itself averages with beta2. Decay is decoupled, as AdamW's.
struct LionParameters {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  View gradient_scale = {};  // as GradientScale leaves it
};

// Adagrad (Duchi et al., JMLR 12, 2011), as PyTorch defines it (torch.optim.Adagrad, without a
// decay of its own of lr, from a sum of 0): weight decay is part of the gradient.
struct AdagradParameters {
  double lr = 0;
  double eps = 0;
  double weight_decay = 0;
  View gradient_scale = {};  // as GradientScale leaves it
};

// SGD with momentum, as PyTorch defines it (torch.optim.SGD; Sutskever et al., ICML 2013): decay is
// part of the gradient; the first update takes it as the momentum, without dampening.
struct MomentumParameters {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;
  View gradient_scale = {};  // as GradientScale leaves it
  bool first = false;        // update of the run
};

// Elements that share a scale in 8 bits.
inline constexpr int64_t kQuantisationBlock = 256;

// Whether numbers in 8 bits may be negative: which map their codes are of.
enum class QuantisedSign { kAny, kNone };

// An array in 8 bits (worker/backend/quantisation.h says how): for each element a code [1, n], kU8;
// for each block a scale [1, n / block, rounded up], kF32. All bytes 0: all elements are 0.
struct QuantisedView {
  View codes;
  View scales;
};

class Updates {
 public:
  virtual ~Updates() = default;

  // Updates each of `count` segments, of which no two overlap: param, first and second moment are
  // updated in place, weight is written; gradient is left as it is. Weights are of one type.
  virtual void Adamw(const AdamwParameters& adamw, const AdamwSegment* segments, int64_t count) = 0;
  // The same of one array, with moments of 8 bits: the update uses them before they are quantised
  // again.
  virtual void QuantisedAdamw(const AdamwParameters& adamw, double weight_decay, View gradient,
                              View param, const QuantisedView& exp_avg,
                              const QuantisedView& exp_avg_sq) = 0;
  // param and moment are updated in place. The sign of 0 is 0, that of a not-a-number is it.
  virtual void Lion(const LionParameters& lion, View gradient, View param, View exp_avg) = 0;
  // g = gradient_scale * gradient + weight_decay * p; sum += g * g; p -= lr * g / (sqrt(sum) + eps)
  virtual void Adagrad(const AdagradParameters& adagrad, View gradient, View param, View sum) = 0;
  // p -= lr * (gradient_scale * g + weight_decay * p)
  virtual void Sgd(double lr, double weight_decay, View gradient_scale, View gradient,
                   View param) = 0;
  // g = gradient_scale * gradient + weight_decay * p; momentum = momentum' * momentum +
  // (1 - dampening) * g, or g if first; p -= lr * (nesterov ? g + momentum' * momentum : momentum)
  virtual void SgdMomentum(const MomentumParameters& sgd, View gradient, View param,
                           View momentum) = 0;
};

// Tells whether an update may go over `param` and as many elements of `others`. Both backends ask,
// before they touch anything.
inline bool FitsUpdate(View gradient_scale, View param, std::initializer_list<View> others) {
  return IsScale(gradient_scale) && IsVector(param, param.elements()) &&
         std::all_of(others.begin(), others.end(),
                     [&](View x) { return IsVector(x, param.elements()); });
}
inline bool IsQuantised(const QuantisedView& x, int64_t count) {
  return IsVector(x.codes, count, DType::kU8) &&
         IsVector(x.scales, (count + kQuantisationBlock - 1) / kQuantisationBlock);
}

inline bool FitsQuantisedAdamw(const AdamwParameters& adamw, View gradient, View param,
                               const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq) {
  return adamw.step >= 1 && FitsUpdate(adamw.gradient_scale, param, {gradient}) &&
         IsQuantised(exp_avg, param.elements()) && IsQuantised(exp_avg_sq, param.elements());
}

// Returns the type of the segments' weights; kF32: there are none.
inline DType WeightTypeOf(const AdamwSegment* segments, int64_t count) {
  for (const AdamwSegment* at = segments; at != segments + count; ++at) {
    if (at->weight.data != nullptr) return at->weight.dtype;
  }
  return DType::kF32;
}
// Returns the first segment of a call that does not fit it; null: all do.
inline const AdamwSegment* FirstUnfit(const AdamwParameters& adamw, const AdamwSegment* segments,
                                      int64_t count) {
  const DType type = WeightTypeOf(segments, count);
  const AdamwSegment* const unfit =
      std::find_if(segments, segments + count, [&](const AdamwSegment& x) {
        const bool has_weight = x.weight.data != nullptr;
        return adamw.step < 1 || !IsElement(type) ||
               !FitsUpdate(adamw.gradient_scale, x.param, {x.gradient, x.exp_avg, x.exp_avg_sq}) ||
               (has_weight &&
                (type == DType::kF32 || !IsVector(x.weight, x.param.elements(), type)));
      });
  return unfit == segments + count ? nullptr : unfit;
}

}  // namespace weft
