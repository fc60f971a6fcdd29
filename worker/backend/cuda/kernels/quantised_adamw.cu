// AdamW on moments of 8 bits: a warp for each block of moments, whose scales it finds without a
// barrier. Constants, maps and order of operations are those of cpu/kernels/quantised_adamw.cc.
#include <algorithm>
#include <cmath>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/gradient_scale.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/updates.h"
#include "worker/backend/quantisation.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOfLane = static_cast<int>(kQuantisationBlock) / 32;  // elements of a block
constexpr int64_t kMostBlocks = 132 * 16;                           // longer arrays go round

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

// A map's numbers, and the middle between each and the one before it.
struct SharedMap {
  float numbers[256];
  float middles[256];

  __device__ void Load(const float* map) {
    const int i = static_cast<int>(threadIdx.x);
    numbers[i] = map[i];
    middles[i] = i > 0 ? 0.5F * (map[i - 1] + map[i]) : 0.0F;
  }
  // NearestCode of quantisation.h.
  __device__ __forceinline__ int Nearest(float share) const {
    int code = 0;
    for (int step = 128; step > 0; step /= 2) {
      if (share > middles[code + step]) code += step;
    }
    return code;
  }
};
static_assert(kThreads == 256, "a thread for each number of a map");

// Holds a lane's elements of a block, kWidth at once; between two such packs lie those of the other
// lanes.
template <int kWidth>
struct Moments {
  static constexpr int kPacks = kOfLane / kWidth;
  float mean[kPacks][kWidth];
  float square[kPacks][kWidth];
  float largest_mean;
  float largest_square;
};
template <int kWidth>
__device__ int64_t PackAt(int64_t block, int pack) {
  return block * kQuantisationBlock + (pack * 32 + static_cast<int>(threadIdx.x % 32)) * kWidth;
}

// Updates a block's parameters; what its moments are now.
template <int kWidth>
__device__ __forceinline__ Moments<kWidth> Update(const Constants& c, float gradient_scale,
                                                  const SharedMap& of_mean,
                                                  const SharedMap& of_square, const Arrays& arrays,
                                                  int64_t block, int64_t count) {
  const float mean_scale = arrays.mean_scales[block];
  const float square_scale = arrays.square_scales[block];
  Moments<kWidth> now = {};
#pragma unroll
  for (int pack = 0; pack < now.kPacks; ++pack) {
    const int64_t at = PackAt<kWidth>(block, pack);
    if (at >= count) continue;
    const auto gradient = *reinterpret_cast<const Pack<float, kWidth>*>(arrays.gradient + at);
    const auto mean = *reinterpret_cast<const Pack<uint8_t, kWidth>*>(arrays.mean_codes + at);
    const auto square = *reinterpret_cast<const Pack<uint8_t, kWidth>*>(arrays.square_codes + at);
    auto* const params = reinterpret_cast<Pack<float, kWidth>*>(arrays.param + at);
    Pack<float, kWidth> param = *params;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float g = gradient.at[e] * gradient_scale;
      const float m = c.beta1 * (of_mean.numbers[mean.at[e]] * mean_scale) + c.rest1 * g;
      const float v =
          c.beta2 * (of_square.numbers[square.at[e]] * square_scale) + c.rest2 * (g * g);
      const float p = param.at[e];
      param.at[e] = p - (c.step_size * m / (sqrtf(v) + c.eps) + c.decay * p);
      now.mean[pack][e] = m;
      now.square[pack][e] = v;
      now.largest_mean = MaxOf{}(now.largest_mean, fabsf(m));
      now.largest_square = MaxOf{}(now.largest_square, v);
    }
    *params = param;
  }
  return now;
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    QuantisedAdamwKernel(Constants c, Maps maps, Arrays arrays, int64_t count) {
  if (!c.scale.Load()) return;
  const auto gradient_scale = static_cast<float>(c.scale.value);
  __shared__ SharedMap of_mean;
  __shared__ SharedMap of_square;
  of_mean.Load(maps.mean);
  of_square.Load(maps.square);
  __syncthreads();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       block * kQuantisationBlock < count; block += stride) {
    const auto now = Update<kWidth>(c, gradient_scale, of_mean, of_square, arrays, block, count);
    // All lanes have read the old scales: what they bring here depends on these.
    const float mean_scale = ReduceWarp(MaxOf{}, now.largest_mean);
    const float square_scale = ReduceWarp(MaxOf{}, now.largest_square);
#pragma unroll
    for (int pack = 0; pack < now.kPacks; ++pack) {
      const int64_t at = PackAt<kWidth>(block, pack);
      if (at >= count) continue;
      Pack<uint8_t, kWidth> mean;
      Pack<uint8_t, kWidth> square;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float m = now.mean[pack][e];
        const float v = now.square[pack][e];
        const int code = of_square.Nearest(square_scale > 0 ? v / square_scale : 0.0F);
        mean.at[e] = static_cast<uint8_t>(of_mean.Nearest(mean_scale > 0 ? m / mean_scale : 0.0F));
        square.at[e] = static_cast<uint8_t>(v > 0 && code == 0 ? 1 : code);
      }
      *reinterpret_cast<Pack<uint8_t, kWidth>*>(arrays.mean_codes + at) = mean;
      *reinterpret_cast<Pack<uint8_t, kWidth>*>(arrays.square_codes + at) = square;
    }
    if (threadIdx.x % 32 == 0) {
      arrays.mean_scales[block] = mean_scale;
      arrays.square_scales[block] = square_scale;
    }
  }
}

Constants ConstantsOf(const AdamwParameters& adamw, double weight_decay) {
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
          .decay = static_cast<float>(adamw.lr * weight_decay)};
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}
uint8_t* Codes(const QuantisedView& x) {
  return static_cast<uint8_t*>(x.codes.data);
}

}  // namespace

cudaError_t QueueQuantisedAdamw(const Queue& queue, const AdamwParameters& adamw,
                                double weight_decay, View gradient, View param,
                                const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq) {
  Maps maps;
  const CodeMap mean = DynamicCodes(QuantisedSign::kAny);
  const CodeMap square = DynamicCodes(QuantisedSign::kNone);
  std::copy(mean.begin(), mean.end(), maps.mean);
  std::copy(square.begin(), square.end(), maps.square);
  const Arrays arrays = {Floats(gradient),       Floats(param),     Codes(exp_avg),
                         Floats(exp_avg.scales), Codes(exp_avg_sq), Floats(exp_avg_sq.scales)};
  const int64_t count = param.elements();
  constexpr int kWidth = kWidest<float>;
  const auto holds_packs = [](const uint8_t* codes) {
    return reinterpret_cast<uintptr_t>(codes) % kWidth == 0;
  };
  const bool wide = count % kWidth == 0 && IsWide(arrays.gradient) && IsWide(arrays.param) &&
                    holds_packs(arrays.mean_codes) && holds_packs(arrays.square_codes);
  constexpr int64_t kOfBlock = kWarps * kQuantisationBlock;
  return Launch(
      wide ? QuantisedAdamwKernel<kWidth> : QuantisedAdamwKernel<1>,
      {.blocks = std::min(kMostBlocks, (count + kOfBlock - 1) / kOfBlock), .threads = kThreads},
      queue.stream, ConstantsOf(adamw, weight_decay), maps, arrays, count);
}

}  // namespace weft
