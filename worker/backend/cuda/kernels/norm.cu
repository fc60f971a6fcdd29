// Layer and root-mean-square normalisation, row by row. Rows of models stream (norm_stream.h); here
// are those of any length and alignment: a row belongs to a warp, or to a block if it is long, and
// is read again for each sum. Statistics in double, as in cpu/norm.cc.
#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/norm_stream.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kLongestOfAWarp = 2048;
constexpr int kBlocksAtLeast = 2;  // of a multiprocessor: rows wait for memory while others compute

struct NormShape {
  int64_t rows;
  int64_t cols;
  double eps;
  float offset;  // of weights
};

// How a row is shared out: to kTeam threads, a warp or a block, in packs of kWidth elements.
template <int kTeamSize, int kPackWidth>
struct Split {
  static constexpr int kTeam = kTeamSize;
  static constexpr int kWidth = kPackWidth;
};

// The threads of a row.
template <typename Way>
struct Team {
  int64_t row;
  int member;
  __device__ Team()
      : row(static_cast<int64_t>(blockIdx.x) * (kThreads / Way::kTeam) +
            static_cast<int64_t>(threadIdx.x) / Way::kTeam),
        member(static_cast<int>(threadIdx.x) % Way::kTeam) {}
  __device__ double Sum(double value) const {
    if constexpr (Way::kTeam == 32) {
      return ReduceWarp(SumOf{}, value);
    } else {
      return ReduceBlock(SumOf{}, value);
    }
  }
  // f(i) for the packs of the row that are this thread's.
  template <typename F>
  __device__ void ForEachPack(int64_t cols, const F& f) const {
    const int64_t packs = cols / Way::kWidth;
    for (int64_t i = member; i < packs; i += Way::kTeam) f(i);
  }
};

template <int kWidth, typename T>
__device__ Pack<T, kWidth> PackAt(const T* data, int64_t i) {
  return reinterpret_cast<const Pack<T, kWidth>*>(data)[i];
}

// bias and mean are null for the root-mean-square norm.
template <typename T, typename Way>
__global__ void __launch_bounds__(kThreads, kBlocksAtLeast)
    NormKernel(NormShape shape, const T* x, const T* weight, const T* bias, T* y, float* mean,
               float* rstd) {
  constexpr int kWidth = Way::kWidth;
  const Team<Way> team;
  if (team.row >= shape.rows) return;
  const T* const row = x + team.row * shape.cols;
  const auto cols = static_cast<double>(shape.cols);
  double exact_mean = 0;
  if (mean != nullptr) {
    double total = 0;
    team.ForEachPack(shape.cols, [&](int64_t i) {
      const Pack<T, kWidth> values = PackAt<kWidth>(row, i);
      for (const T value : values.at) total += static_cast<double>(ToFloat(value));
    });
    exact_mean = team.Sum(total) / cols;
  }
  double squares = 0;
  team.ForEachPack(shape.cols, [&](int64_t i) {
    const Pack<T, kWidth> values = PackAt<kWidth>(row, i);
    for (const T value : values.at) {
      const double centered = static_cast<double>(ToFloat(value)) - exact_mean;
      squares += centered * centered;
    }
  });
  squares = team.Sum(squares);
  const auto row_mean = static_cast<float>(exact_mean);
  const auto row_rstd = static_cast<float>(1.0 / sqrt(squares / cols + shape.eps));
  auto* const to = reinterpret_cast<Pack<T, kWidth>*>(y + team.row * shape.cols);
  team.ForEachPack(shape.cols, [&](int64_t i) {
    const Pack<T, kWidth> values = PackAt<kWidth>(row, i);
    const auto weights = PackAt<kWidth>(weight, i);
    const auto biases = bias != nullptr ? PackAt<kWidth>(bias, i) : weights;
    Pack<T, kWidth> normal;
    for (int e = 0; e < kWidth; ++e) {
      float value =
          (ToFloat(values.at[e]) - row_mean) * row_rstd * (shape.offset + ToFloat(weights.at[e]));
      if (bias != nullptr) value += ToFloat(biases.at[e]);
      normal.at[e] = FromFloat<T>(value);
    }
    to[i] = normal;
  });
  if (team.member == 0) {
    if (mean != nullptr) mean[team.row] = row_mean;
    rstd[team.row] = row_rstd;
  }
}

// With g = dy * (offset + weight) and n the normalised row: dx += rstd * (g - mean(g) - n * mean(g
// * n)), without mean(g) for the root-mean-square norm.
template <typename T, typename Way>
__global__ void __launch_bounds__(kThreads, kBlocksAtLeast)
    NormInputGradientKernel(NormShape shape, const T* dy, const T* x, const T* weight,
                            const float* mean, const float* rstd, T* dx) {
  constexpr int kWidth = Way::kWidth;
  const Team<Way> team;
  if (team.row >= shape.rows) return;
  const int64_t at = team.row * shape.cols;
  const float row_mean = mean == nullptr ? 0.0F : mean[team.row];
  const float row_rstd = rstd[team.row];
  // f(i, g, normal) for each pack.
  const auto for_each = [&](const auto& f) {
    team.ForEachPack(shape.cols, [&](int64_t i) {
      const Pack<T, kWidth> dys = PackAt<kWidth>(dy + at, i);
      const Pack<T, kWidth> xs = PackAt<kWidth>(x + at, i);
      const auto weights = PackAt<kWidth>(weight, i);
      float g[kWidth];
      float normal[kWidth];
      for (int e = 0; e < kWidth; ++e) {
        g[e] = ToFloat(dys.at[e]) * (shape.offset + ToFloat(weights.at[e]));
        normal[e] = (ToFloat(xs.at[e]) - row_mean) * row_rstd;
      }
      f(i, g, normal);
    });
  };
  double sum = 0;
  double sum_normal = 0;
  for_each([&](int64_t /*i*/, const float(&g)[kWidth], const float(&normal)[kWidth]) {
    for (int e = 0; e < kWidth; ++e) {
      sum += static_cast<double>(g[e]);
      sum_normal += static_cast<double>(g[e] * normal[e]);
    }
  });
  const double inverse_cols = 1.0 / static_cast<double>(shape.cols);
  const auto mean_gn = static_cast<float>(team.Sum(sum_normal) * inverse_cols);
  const auto mean_g = mean == nullptr ? 0.0F : static_cast<float>(team.Sum(sum) * inverse_cols);
  auto* const to = reinterpret_cast<Pack<T, kWidth>*>(dx + at);
  for_each([&](int64_t i, const float(&g)[kWidth], const float(&normal)[kWidth]) {
    Pack<T, kWidth> sums = to[i];
    for (int e = 0; e < kWidth; ++e) {
      sums.at[e] =
          FromFloat<T>(ToFloat(sums.at[e]) + row_rstd * (g[e] - mean_g - normal[e] * mean_gn));
    }
    to[i] = sums;
  });
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

// Calls launch(way, blocks) with the Split that serves rows of `cols` elements, whose arrays are
// aligned to 16 bytes if `is_wide`.
template <typename T, typename F>
cudaError_t WithSplit(int64_t rows, int64_t cols, bool is_wide, const F& launch) {
  if (is_wide && cols % kWidest<T> == 0) return launch(Split<kThreads, kWidest<T>>{}, rows);
  if (cols > kLongestOfAWarp) return launch(Split<kThreads, 1>{}, rows);
  constexpr int64_t kRows = kThreads / 32;
  return launch(Split<32, 1>{}, (rows + kRows - 1) / kRows);
}

cudaError_t Forward(const Queue& queue, View x, View weight, View bias,
                    const NormConstants& constants, View y, View mean, View rstd) {
  if (StreamsRows(x, {weight, bias, y})) {
    return QueueStreamedNorm(queue, x, weight, bias, constants, y, mean, rstd);
  }
  const NormShape shape = {x.rows, x.cols, constants.eps, static_cast<float>(constants.offset)};
  const bool is_wide = IsWide(x.data) && IsWide(weight.data) && IsWide(bias.data) && IsWide(y.data);
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return WithSplit<T>(x.rows, x.cols, is_wide, [&](auto way, int64_t blocks) {
      return Launch(NormKernel<T, decltype(way)>, {.blocks = blocks, .threads = kThreads},
                    queue.stream, shape, static_cast<const T*>(x.data),
                    static_cast<const T*>(weight.data), static_cast<const T*>(bias.data),
                    static_cast<T*>(y.data), Floats(mean), Floats(rstd));
    });
  });
}

cudaError_t InputGradient(const Queue& queue, View dy, View x, View weight, double offset,
                          View mean, View rstd, View dx) {
  const NormShape shape = {x.rows, x.cols, 0, static_cast<float>(offset)};
  const bool is_wide = IsWide(dy.data) && IsWide(x.data) && IsWide(weight.data) && IsWide(dx.data);
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return WithSplit<T>(x.rows, x.cols, is_wide, [&](auto way, int64_t blocks) {
      return Launch(NormInputGradientKernel<T, decltype(way)>,
                    {.blocks = blocks, .threads = kThreads}, queue.stream, shape,
                    static_cast<const T*>(dy.data), static_cast<const T*>(x.data),
                    static_cast<const T*>(weight.data), static_cast<const float*>(mean.data),
                    static_cast<const float*>(rstd.data), static_cast<T*>(dx.data));
    });
  });
}

}  // namespace

cudaError_t QueueLayerNorm(const Queue& queue, View x, View weight, View bias,
                           const NormConstants& constants, View y, View mean, View rstd) {
  return Forward(queue, x, weight, bias, constants, y, mean, rstd);
}

cudaError_t QueueRmsNorm(const Queue& queue, View x, View weight, const NormConstants& constants,
                         View y, View rstd) {
  return Forward(queue, x, weight, {}, constants, y, {}, rstd);
}

cudaError_t QueueLayerNormGradient(const Queue& queue, View dy, View x, View weight,
                                   const NormConstants& constants, View mean, View rstd, View dx,
                                   View dweight, View dbias) {
  if (StreamsRows(x, {dy, weight, dx})) {
    return QueueStreamedNormGradient(queue, dy, x, weight, constants.offset, mean, rstd, dx,
                                     dweight, dbias);
  }
  const cudaError_t code = QueueLayerNormWeightGradient(queue, dy, x, mean, rstd, dweight, dbias);
  if (code != cudaSuccess) return code;
  return InputGradient(queue, dy, x, weight, constants.offset, mean, rstd, dx);
}

cudaError_t QueueRmsNormGradient(const Queue& queue, View dy, View x, View weight,
                                 const NormConstants& constants, View rstd, View dx, View dweight) {
  if (StreamsRows(x, {dy, weight, dx})) {
    return QueueStreamedNormGradient(queue, dy, x, weight, constants.offset, {}, rstd, dx, dweight,
                                     {});
  }
  const cudaError_t code = QueueRmsNormWeightGradient(queue, dy, x, rstd, dweight);
  if (code != cudaSuccess) return code;
  return InputGradient(queue, dy, x, weight, constants.offset, {}, rstd, dx);
}

}  // namespace weft
