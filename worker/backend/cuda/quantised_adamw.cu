// AdamW on moments of 8 bits: a block of threads for each block of moments, a thread for each
// element. Constants, maps and order of operations are those of cpu/quantised_adamw.cc.
#include <algorithm>
#include <cmath>

#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/gradient_scale.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/quantisation.h"

namespace weft {
namespace {

constexpr int kThreads = static_cast<int>(kQuantisationBlock);
constexpr int64_t kMostBlocks = 132 * 16;  // longer arrays go round

struct Constants {
  GradientScale scale;
  float beta1, beta2, rest1, rest2, step_size, eps, decay;
};

struct Maps {
  float mean[256];
  float square[256];
};

struct Arrays {
  const float* gradient;
  float* param;
  uint8_t* mean_codes;
  float* mean_scales;
  uint8_t* square_codes;
  float* square_scales;
};

// NearestCode of quantisation.h.
__device__ __forceinline__ int Nearest(const float* map, float share) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) {
    if (share > 0.5F * (map[code + step - 1] + map[code + step])) code += step;
  }
  return code;
}

__global__ void __launch_bounds__(kThreads)
    QuantisedAdamwKernel(Constants c, Maps maps, Arrays arrays, int64_t count) {
  if (!c.scale.Load()) return;
  const auto gradient_scale = static_cast<float>(c.scale.value);
  __shared__ float of_mean[256];
  __shared__ float of_square[256];
  of_mean[threadIdx.x] = maps.mean[threadIdx.x];
  of_square[threadIdx.x] = maps.square[threadIdx.x];
  __syncthreads();
  for (int64_t block = blockIdx.x; block * kThreads < count; block += gridDim.x) {
    const int64_t i = block * kThreads + threadIdx.x;
    const bool is_there = i < count;
    float m = 0;
    float v = 0;
    if (is_there) {
      const float g = arrays.gradient[i] * gradient_scale;
      m = c.beta1 * (of_mean[arrays.mean_codes[i]] * arrays.mean_scales[block]) + c.rest1 * g;
      v = c.beta2 * (of_square[arrays.square_codes[i]] * arrays.square_scales[block]) +
          c.rest2 * (g * g);
      const float p = arrays.param[i];
      arrays.param[i] = p - (c.step_size * m / (sqrtf(v) + c.eps) + c.decay * p);
    }
    // Behind a barrier of the reductions, all have read the old scales.
    const float mean_scale = ReduceBlock(MaxOf{}, fabsf(m));
    const float square_scale = ReduceBlock(MaxOf{}, v);
    if (is_there) {
      const int code = Nearest(of_square, square_scale > 0 ? v / square_scale : 0.0F);
      arrays.mean_codes[i] =
          static_cast<uint8_t>(Nearest(of_mean, mean_scale > 0 ? m / mean_scale : 0.0F));
      arrays.square_codes[i] = static_cast<uint8_t>(v > 0 && code == 0 ? 1 : code);
    }
    if (threadIdx.x == 0) {
      arrays.mean_scales[block] = mean_scale;
      arrays.square_scales[block] = square_scale;
    }
  }
}

Constants ConstantsOf(const AdamwParameters& adamw) {
  const auto step = static_cast<double>(adamw.step);
  const double correction1 = 1.0 - std::pow(adamw.beta1, step);
  const double correction2 = 1.0 - std::pow(adamw.beta2, step);
  return {.scale = ScaleAt(adamw.gradient_scale),
          .beta1 = static_cast<float>(adamw.beta1),
          .beta2 = static_cast<float>(adamw.beta2),
          .rest1 = static_cast<float>(1.0 - adamw.beta1),
          .rest2 = static_cast<float>(1.0 - adamw.beta2),
          .step_size = static_cast<float>(adamw.lr * std::sqrt(correction2) / correction1),
          .eps = static_cast<float>(adamw.eps * std::sqrt(correction2)),
          .decay = static_cast<float>(adamw.lr * adamw.weight_decay)};
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}
uint8_t* Codes(const QuantisedView& x) {
  return static_cast<uint8_t*>(x.codes.data);
}

}  // namespace

cudaError_t QueueQuantisedAdamw(const Queue& queue, const AdamwParameters& adamw, View gradient,
                                View param, const QuantisedView& exp_avg,
                                const QuantisedView& exp_avg_sq) {
  Maps maps;
  const CodeMap mean = DynamicCodes(QuantisedSign::kAny);
  const CodeMap square = DynamicCodes(QuantisedSign::kNone);
  std::copy(mean.begin(), mean.end(), maps.mean);
  std::copy(square.begin(), square.end(), maps.square);
  const Arrays arrays = {Floats(gradient),       Floats(param),     Codes(exp_avg),
                         Floats(exp_avg.scales), Codes(exp_avg_sq), Floats(exp_avg_sq.scales)};
  const int64_t count = param.elements();
  const int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  return Launch(QuantisedAdamwKernel, {.blocks = blocks, .threads = kThreads}, queue.stream,
                ConstantsOf(adamw), maps, arrays, count);
}

}  // namespace weft
