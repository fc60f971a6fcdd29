// AdamW on moments of 8 bits: a block's moments are made wide, updated as AdamwUpdate does, used,
// and quantised again.
#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/updates.h"
#include "worker/backend/quantisation.h"

namespace weft {
namespace {

struct Constants {
  Constants(const AdamwParameters& adamw, double weight_decay, double scale) {
    const auto step = static_cast<double>(adamw.step);
    const double correction1 = 1.0 - std::pow(adamw.beta1, step);
    const double correction2 = 1.0 - std::pow(adamw.beta2, step);
    gradient_scale = static_cast<float>(scale);
    beta1 = static_cast<float>(adamw.beta1);
    beta2 = static_cast<float>(adamw.beta2);
    rest1 = static_cast<float>(1.0 - adamw.beta1);
    rest2 = static_cast<float>(1.0 - adamw.beta2);
    step_size = static_cast<float>(adamw.lr * std::sqrt(correction2) / correction1);
    eps = static_cast<float>(adamw.eps * std::sqrt(correction2));
    decay = static_cast<float>(adamw.lr * weight_decay);
  }
  float gradient_scale, beta1, beta2, rest1, rest2, step_size, eps, decay;
};

// In and out: the block's moments, wide.
WEFT_CLONES void UpdateBlock(const Constants& c, const float* gradient, float* param, float* mean,
                             float* square, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float m = c.beta1 * mean[i] + c.rest1 * g;
    const float v = c.beta2 * square[i] + c.rest2 * (g * g);
    mean[i] = m;
    square[i] = v;
    param[i] -= c.step_size * m / (std::sqrt(v) + c.eps) + c.decay * param[i];
  }
}

}  // namespace

void QuantisedAdamwUpdate(const AdamwParameters& adamw, double weight_decay, double gradient_scale,
                          const float* gradient, float* param, const QuantisedMoment& exp_avg,
                          const QuantisedMoment& exp_avg_sq, int64_t count) {
  const Constants constants(adamw, weight_decay, gradient_scale);
  const CodeMap of_mean = DynamicCodes(QuantisedSign::kAny);
  const CodeMap of_square = DynamicCodes(QuantisedSign::kNone);
  float mean[kQuantisationBlock];
  float square[kQuantisationBlock];
  for (int64_t begin = 0; begin < count; begin += kQuantisationBlock) {
    const int64_t size = std::min(kQuantisationBlock, count - begin);
    uint8_t* const mean_codes = exp_avg.codes + begin;
    uint8_t* const square_codes = exp_avg_sq.codes + begin;
    float& mean_scale = exp_avg.scales[begin / kQuantisationBlock];
    float& square_scale = exp_avg_sq.scales[begin / kQuantisationBlock];
    for (int64_t i = 0; i < size; ++i) {
      mean[i] = of_mean[mean_codes[i]] * mean_scale;
      square[i] = of_square[square_codes[i]] * square_scale;
    }
    UpdateBlock(constants, gradient + begin, param + begin, mean, square, size);
    mean_scale = QuantiseBlock(of_mean, QuantisedSign::kAny, mean, size, mean_codes);
    square_scale = QuantiseBlock(of_square, QuantisedSign::kNone, square, size, square_codes);
  }
}

}  // namespace weft
