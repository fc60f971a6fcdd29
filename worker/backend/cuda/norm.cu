// Layer and root-mean-square normalisation, row by row. A row belongs to a warp, or to a block if
// it is long. Statistics in double, as in cpu/norm.cc.
#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kLongestOfAWarp = 2048;

struct NormShape {
  int64_t rows;
  int64_t cols;
  double eps;
};

// The threads of a row: kTeam of them, a warp or a block.
template <int kTeam>
struct Team {
  int64_t row;
  int member;
  __device__ Team()
      : row(static_cast<int64_t>(blockIdx.x) * (kThreads / kTeam) +
            static_cast<int64_t>(threadIdx.x) / kTeam),
        member(static_cast<int>(threadIdx.x) % kTeam) {}
  __device__ double Sum(double value) const {
    if constexpr (kTeam == 32) {
      return ReduceWarp(SumOf{}, value);
    } else {
      return ReduceBlock(SumOf{}, value);
    }
  }
};

// bias and mean are null for the root-mean-square norm.
template <typename T, int kTeam>
__global__ void __launch_bounds__(kThreads)
    NormKernel(NormShape shape, const T* x, const T* weight, const T* bias, T* y, float* mean,
               float* rstd) {
  const Team<kTeam> team;
  if (team.row >= shape.rows) return;
  const T* const x_row = x + team.row * shape.cols;
  T* const y_row = y + team.row * shape.cols;
  double exact_mean = 0;
  if (mean != nullptr) {
    double total = 0;
    for (int64_t i = team.member; i < shape.cols; i += kTeam) {
      total += static_cast<double>(ToFloat(x_row[i]));
    }
    exact_mean = team.Sum(total) / static_cast<double>(shape.cols);
  }
  double squares = 0;
  for (int64_t i = team.member; i < shape.cols; i += kTeam) {
    const double centered = static_cast<double>(ToFloat(x_row[i])) - exact_mean;
    squares += centered * centered;
  }
  squares = team.Sum(squares);
  const auto row_mean = static_cast<float>(exact_mean);
  const auto row_rstd =
      static_cast<float>(1.0 / sqrt(squares / static_cast<double>(shape.cols) + shape.eps));
  for (int64_t i = team.member; i < shape.cols; i += kTeam) {
    float value = (ToFloat(x_row[i]) - row_mean) * row_rstd * ToFloat(weight[i]);
    if (bias != nullptr) value += ToFloat(bias[i]);
    y_row[i] = FromFloat<T>(value);
  }
  if (team.member == 0) {
    if (mean != nullptr) mean[team.row] = row_mean;
    rstd[team.row] = row_rstd;
  }
}

// With g = dy * weight and n the normalised row: dx += rstd * (g - mean(g) - n * mean(g * n)),
// without mean(g) for the root-mean-square norm.
template <typename T, int kTeam>
__global__ void __launch_bounds__(kThreads)
    NormInputGradientKernel(NormShape shape, const T* dy, const T* x, const T* weight,
                            const float* mean, const float* rstd, T* dx) {
  const Team<kTeam> team;
  if (team.row >= shape.rows) return;
  const int64_t at = team.row * shape.cols;
  const float row_mean = mean == nullptr ? 0.0F : mean[team.row];
  const float row_rstd = rstd[team.row];
  double sum = 0;
  double sum_normal = 0;
  for (int64_t i = team.member; i < shape.cols; i += kTeam) {
    const float g = ToFloat(dy[at + i]) * ToFloat(weight[i]);
    const float normal = (ToFloat(x[at + i]) - row_mean) * row_rstd;
    sum += static_cast<double>(g);
    sum_normal += static_cast<double>(g * normal);
  }
  const double inverse_cols = 1.0 / static_cast<double>(shape.cols);
  const auto mean_gn = static_cast<float>(team.Sum(sum_normal) * inverse_cols);
  const auto mean_g = mean == nullptr ? 0.0F : static_cast<float>(team.Sum(sum) * inverse_cols);
  for (int64_t i = team.member; i < shape.cols; i += kTeam) {
    const float g = ToFloat(dy[at + i]) * ToFloat(weight[i]);
    const float normal = (ToFloat(x[at + i]) - row_mean) * row_rstd;
    dx[at + i] = FromFloat<T>(ToFloat(dx[at + i]) + row_rstd * (g - mean_g - normal * mean_gn));
  }
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

cudaError_t Forward(const Queue& queue, View x, View weight, View bias, double eps, View y,
                    View mean, View rstd) {
  const NormShape shape = {x.rows, x.cols, eps};
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, int64_t blocks) {
      return Launch(kernel, {.blocks = blocks, .threads = kThreads}, queue.stream, shape,
                    static_cast<const T*>(x.data), static_cast<const T*>(weight.data),
                    static_cast<const T*>(bias.data), static_cast<T*>(y.data), Floats(mean),
                    Floats(rstd));
    };
    constexpr int64_t kRows = kThreads / 32;
    if (x.cols > kLongestOfAWarp) return launch(NormKernel<T, kThreads>, x.rows);
    return launch(NormKernel<T, 32>, (x.rows + kRows - 1) / kRows);
  });
}

cudaError_t InputGradient(const Queue& queue, View dy, View x, View weight, View mean, View rstd,
                          View dx) {
  const NormShape shape = {x.rows, x.cols, 0};
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, int64_t blocks) {
      return Launch(kernel, {.blocks = blocks, .threads = kThreads}, queue.stream, shape,
                    static_cast<const T*>(dy.data), static_cast<const T*>(x.data),
                    static_cast<const T*>(weight.data), static_cast<const float*>(mean.data),
                    static_cast<const float*>(rstd.data), static_cast<T*>(dx.data));
    };
    constexpr int64_t kRows = kThreads / 32;
    if (x.cols > kLongestOfAWarp) return launch(NormInputGradientKernel<T, kThreads>, x.rows);
    return launch(NormInputGradientKernel<T, 32>, (x.rows + kRows - 1) / kRows);
  });
}

}  // namespace

cudaError_t QueueLayerNorm(const Queue& queue, View x, View weight, View bias, double eps, View y,
                           View mean, View rstd) {
  return Forward(queue, x, weight, bias, eps, y, mean, rstd);
}

cudaError_t QueueRmsNorm(const Queue& queue, View x, View weight, double eps, View y, View rstd) {
  return Forward(queue, x, weight, {}, eps, y, {}, rstd);
}

cudaError_t QueueLayerNormInputGradient(const Queue& queue, View dy, View x, View weight, View mean,
                                        View rstd, View dx) {
  return InputGradient(queue, dy, x, weight, mean, rstd, dx);
}

cudaError_t QueueRmsNormInputGradient(const Queue& queue, View dy, View x, View weight, View rstd,
                                      View dx) {
  return InputGradient(queue, dy, x, weight, {}, rstd, dx);
}

}  // namespace weft
