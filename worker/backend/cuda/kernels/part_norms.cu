// A row belongs to a warp, in packs of 16 bytes where its arrays consist of them. Sums are taken in
// double, as in cpu/kernels/part_norms.cc.
#include <initializer_list>
#include <type_traits>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/part_norms.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/operands.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 32;

struct PartShape {
  int64_t rows;
  int64_t cols;
  double factor;  // of sums
  double eps;
  float offset;  // of weights
};

// The lanes of a row.
struct Lanes {
  int64_t row;
  int lane;
  __device__ Lanes()
      : row(static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) +
            static_cast<int64_t>(threadIdx.x) / kLanes),
        lane(static_cast<int>(threadIdx.x) % kLanes) {}
};

template <int kWidth, typename T>
__device__ Pack<T, kWidth> At(const T* data, int64_t i) {
  return reinterpret_cast<const Pack<T, kWidth>*>(data)[i];
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    PartSquaresKernel(PartShape shape, const T* x, float* means) {
  const Lanes own;
  if (own.row >= shape.rows) return;
  const T* const row = x + own.row * shape.cols;
  double squares = 0;
  for (int64_t i = own.lane; i < shape.cols / kWidth; i += kLanes) {
    const Pack<T, kWidth> values = At<kWidth>(row, i);
    for (int e = 0; e < kWidth; ++e) {
      const double value = static_cast<double>(ToFloat(values.at[e]));
      squares += value * value;
    }
  }
  squares = ReduceWarp(SumOf{}, squares);
  if (own.lane == 0) means[own.row] = static_cast<float>(shape.factor * squares);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    NormOfPartKernel(PartShape shape, const T* x, const T* weight, T* y, float* rstd) {
  const Lanes own;
  if (own.row >= shape.rows) return;
  const int64_t at = own.row * shape.cols;
  const double mean = static_cast<double>(rstd[own.row]);
  const auto row_rstd = static_cast<float>(1.0 / sqrt(mean + shape.eps));
  auto* const to = reinterpret_cast<Pack<T, kWidth>*>(y + at);
  for (int64_t i = own.lane; i < shape.cols / kWidth; i += kLanes) {
    const Pack<T, kWidth> values = At<kWidth>(x + at, i);
    const Pack<T, kWidth> weights = At<kWidth>(weight, i);
    Pack<T, kWidth> normal;
    for (int e = 0; e < kWidth; ++e) {
      normal.at[e] =
          FromFloat<T>(ToFloat(values.at[e]) * row_rstd * (shape.offset + ToFloat(weights.at[e])));
    }
    to[i] = normal;
  }
  __syncwarp();  // all lanes have read the mean
  if (own.lane == 0) rstd[own.row] = row_rstd;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    NormProductsKernel(PartShape shape, const T* dy, const T* x, const T* weight, const float* rstd,
                       float* means) {
  const Lanes own;
  if (own.row >= shape.rows) return;
  const int64_t at = own.row * shape.cols;
  const float row_rstd = rstd[own.row];
  double sum = 0;
  for (int64_t i = own.lane; i < shape.cols / kWidth; i += kLanes) {
    const Pack<T, kWidth> dys = At<kWidth>(dy + at, i);
    const Pack<T, kWidth> xs = At<kWidth>(x + at, i);
    const Pack<T, kWidth> weights = At<kWidth>(weight, i);
    for (int e = 0; e < kWidth; ++e) {
      const float g = ToFloat(dys.at[e]) * (shape.offset + ToFloat(weights.at[e]));
      sum += static_cast<double>(g * (ToFloat(xs.at[e]) * row_rstd));
    }
  }
  sum = ReduceWarp(SumOf{}, sum);
  if (own.lane == 0) means[own.row] = static_cast<float>(shape.factor * sum);
}

// dx += rstd (g - n mean(g n))
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    NormPartGradientKernel(PartShape shape, const T* dy, const T* x, const T* weight,
                           const float* rstd, const float* means, T* dx) {
  const Lanes own;
  if (own.row >= shape.rows) return;
  const int64_t at = own.row * shape.cols;
  const float row_rstd = rstd[own.row];
  const float mean_gn = means[own.row];
  auto* const to = reinterpret_cast<Pack<T, kWidth>*>(dx + at);
  for (int64_t i = own.lane; i < shape.cols / kWidth; i += kLanes) {
    const Pack<T, kWidth> dys = At<kWidth>(dy + at, i);
    const Pack<T, kWidth> xs = At<kWidth>(x + at, i);
    const Pack<T, kWidth> weights = At<kWidth>(weight, i);
    Pack<T, kWidth> sums = to[i];
    for (int e = 0; e < kWidth; ++e) {
      const float g = ToFloat(dys.at[e]) * (shape.offset + ToFloat(weights.at[e]));
      const float normal = ToFloat(xs.at[e]) * row_rstd;
      sums.at[e] = FromFloat<T>(ToFloat(sums.at[e]) + row_rstd * (g - normal * mean_gn));
    }
    to[i] = sums;
  }
}

template <typename T>
const T* In(View x) {
  return static_cast<const T*>(x.data);
}
float* Floats(View x) {
  return static_cast<float*>(x.data);
}

Grid GridOf(View x) {
  constexpr int64_t kRows = kThreads / kLanes;
  return {.blocks = (x.rows + kRows - 1) / kRows, .threads = kThreads};
}

PartShape ShapeOf(View x, const NormConstants& constants, double factor) {
  return {x.rows, x.cols, factor, constants.eps, static_cast<float>(constants.offset)};
}

// Calls launch(element, width) with the widest packs that `x` and the `others` consist of.
template <typename F>
cudaError_t WithPacks(View x, std::initializer_list<View> others, const F& launch) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    bool is_wide = HasWideRows<T>(x);
    for (const View& other : others) is_wide = is_wide && HasWideRows<T>(other);
    if (is_wide) return launch(zero, std::integral_constant<int, kWidest<T>>{});
    return launch(zero, std::integral_constant<int, 1>{});
  });
}

cudaError_t QueueSquares(const Queue& queue, View x, double factor, View means) {
  return WithPacks(x, {}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return Launch(PartSquaresKernel<T, decltype(width)::value>, GridOf(x), queue.stream,
                  ShapeOf(x, {}, factor), In<T>(x), Floats(means));
  });
}

cudaError_t QueueNorm(const Queue& queue, View x, View weight, const NormConstants& constants,
                      View y, View rstd) {
  return WithPacks(x, {weight, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return Launch(NormOfPartKernel<T, decltype(width)::value>, GridOf(x), queue.stream,
                  ShapeOf(x, constants, 1), In<T>(x), In<T>(weight), static_cast<T*>(y.data),
                  Floats(rstd));
  });
}

cudaError_t QueueProducts(const Queue& queue, View dy, View x, View weight,
                          const NormConstants& constants, View rstd, double factor, View means) {
  return WithPacks(x, {dy, weight}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return Launch(NormProductsKernel<T, decltype(width)::value>, GridOf(x), queue.stream,
                  ShapeOf(x, constants, factor), In<T>(dy), In<T>(x), In<T>(weight),
                  static_cast<const float*>(rstd.data), Floats(means));
  });
}

cudaError_t QueueGradient(const Queue& queue, View dy, View x, View weight,
                          const NormConstants& constants, View rstd, View means, View dx,
                          View dweight) {
  const cudaError_t code = QueueRmsNormWeightGradient(queue, dy, x, rstd, dweight);
  if (code != cudaSuccess) return code;
  return WithPacks(x, {dy, weight, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return Launch(NormPartGradientKernel<T, decltype(width)::value>, GridOf(x), queue.stream,
                  ShapeOf(x, constants, 1), In<T>(dy), In<T>(x), In<T>(weight),
                  static_cast<const float*>(rstd.data), static_cast<const float*>(means.data),
                  static_cast<T*>(dx.data));
  });
}

class CudaPartNorms final : public PartNorms {
 public:
  CudaPartNorms(const Queue& queue, FirstFailure& failure) : queue_(queue), failure_(failure) {}

  void Squares(View x, double factor, View means) override {
    if (!failure_.Require(IsActivation(x) && IsVector(means, x.rows), "PartNorms::Squares", x)) {
      return;
    }
    KeepFailure(QueueSquares(queue_, x, factor, means), "PartNorms::Squares", failure_);
  }
  void Norm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    if (!failure_.Require(FitsRmsNorm(x, weight, y, rstd), "PartNorms::Norm", x)) return;
    KeepFailure(QueueNorm(queue_, x, weight, constants, y, rstd), "PartNorms::Norm", failure_);
  }
  void Products(View dy, View x, View weight, const NormConstants& constants, View rstd,
                double factor, View means) override {
    if (!failure_.Require(SameShape(x, {dy}) && FitsRmsNormPart(x, weight, rstd, means),
                          "PartNorms::Products", x)) {
      return;
    }
    KeepFailure(QueueProducts(queue_, dy, x, weight, constants, rstd, factor, means),
                "PartNorms::Products", failure_);
  }
  void Gradient(View dy, View x, View weight, const NormConstants& constants, View rstd, View means,
                View dx, View dweight) override {
    if (!failure_.Require(FitsRmsNormGradient(dy, x, weight, rstd, dx, dweight) &&
                              FitsRmsNormPart(x, weight, rstd, means),
                          "PartNorms::Gradient", x)) {
      return;
    }
    KeepFailure(QueueGradient(queue_, dy, x, weight, constants, rstd, means, dx, dweight),
                "PartNorms::Gradient", failure_);
  }

 private:
  const Queue& queue_;
  FirstFailure& failure_;
};

}  // namespace

std::unique_ptr<PartNorms> MakeCudaPartNorms(const Queue& queue, FirstFailure& failure) {
  return std::make_unique<CudaPartNorms>(queue, failure);
}

}  // namespace weft
