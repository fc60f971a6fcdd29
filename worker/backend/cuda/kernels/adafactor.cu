// Adafactor. A run of elements of a box touches rows, the first and the last perhaps in part;
// blocks take rows in turns. Sums are taken in double, in an order that depends on the run alone;
// constants and order of operations are those of cpu/kernels/adafactor.cc.
#include <algorithm>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/gradient_scale.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/updates.h"
#include "worker/backend/cuda/runtime/cuda_status.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kMomentThreads = 1024;
constexpr int64_t kMostBlocks = 132 * 16;
constexpr int64_t kMostPartials = 1024;

struct Run {
  int64_t begin, end;  // elements of the box, row-major
  int64_t cols;
  int64_t first_row, rows;  // that it touches
};

Run RunOf(View elements, int64_t begin, const FactoredView& box) {
  const int64_t cols = box.cols.elements();
  const int64_t end = begin + elements.elements();
  const int64_t first_row = begin / cols;
  return {begin, end, cols, first_row, (end - 1) / cols - first_row + 1};
}

// work.Begin(row) for rows in turns, then work.Take(index in the run, col) for elements of it.
template <typename Work>
__device__ __forceinline__ void ForEachElement(const Run& run, Work& work) {
  for (int64_t i = blockIdx.x; i < run.rows; i += gridDim.x) {
    const int64_t row = run.first_row + i;
    const int64_t first = max(run.begin, row * run.cols);
    const int64_t end = min(run.end, (row + 1) * run.cols);
    work.Begin(row);
    const int64_t stride = static_cast<int64_t>(gridDim.y) * kThreads;
    for (int64_t at = first + static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x; at < end;
         at += stride) {
      work.Take(at - run.begin, at - row * run.cols);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    RowSquaresKernel(Run run, const float* gradient, GradientScale gradient_scale, float* rows) {
  if (!gradient_scale.Load()) return;
  const auto scale = static_cast<float>(gradient_scale.value);
  for (int64_t i = blockIdx.x; i < run.rows; i += gridDim.x) {
    const int64_t row = run.first_row + i;
    const int64_t first = max(run.begin, row * run.cols);
    const int64_t end = min(run.end, (row + 1) * run.cols);
    double sum = 0;
    for (int64_t at = first + threadIdx.x; at < end; at += kThreads) {
      const double value = static_cast<double>(gradient[at - run.begin] * scale);
      sum += value * value;
    }
    sum = ReduceBlock(SumOf{}, sum);
    if (threadIdx.x == 0) rows[row] += static_cast<float>(sum);
  }
}

struct Factors {
  float* rows;  // null: of a vector
  float* cols;
  float* row_mean;
};

Factors FactorsOf(const FactoredView& view) {
  return {static_cast<float*>(view.rows.data), static_cast<float*>(view.cols.data),
          static_cast<float*>(view.row_mean.data)};
}

__device__ float Averaged(float sum, double terms, double beta, float moment) {
  const double mean = static_cast<double>(sum) / terms + kAdafactorSquareEps;
  return static_cast<float>(beta * static_cast<double>(moment) + (1 - beta) * mean);
}

// One block: a tensor has few rows and columns.
__global__ void __launch_bounds__(kMomentThreads)
    MomentsKernel(double beta, GradientScale scale, int64_t rows, int64_t cols, Factors sums,
                  Factors moments) {
  if (!scale.Load()) return;
  const double of_col = rows > 0 ? static_cast<double>(rows) : 1.0;
  for (int64_t col = threadIdx.x; col < cols; col += kMomentThreads) {
    moments.cols[col] = Averaged(sums.cols[col], of_col, beta, moments.cols[col]);
  }
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kMomentThreads) {
    const float moment =
        Averaged(sums.rows[row], static_cast<double>(cols), beta, moments.rows[row]);
    moments.rows[row] = moment;
    sum += static_cast<double>(moment);
  }
  sum = ReduceBlock(SumOf{}, sum);
  if (threadIdx.x == 0) *moments.row_mean = rows > 0 ? static_cast<float>(sum / of_col) : 1.0F;
}

// scale * sqrt(mean(R) / R_row): what a row's gradients are multiplied by.
__device__ float ScaleOfRow(const Factors& moments, int64_t row, double scale) {
  if (moments.rows == nullptr) return static_cast<float>(scale);
  return static_cast<float>(scale * sqrt(static_cast<double>(*moments.row_mean) /
                                         static_cast<double>(moments.rows[row])));
}

// Sums of squares of updates and, if there are any, of parameters.
struct Measured {
  const float* gradient;
  const float* param;  // null: not asked for
  Factors moments;
  GradientScale gradient_scale;
  float scale;
  double sums[2];

  __device__ void Begin(int64_t row) { scale = ScaleOfRow(moments, row, gradient_scale.value); }
  __device__ void Take(int64_t at, int64_t col) {
    const double update = static_cast<double>(gradient[at] * scale / sqrtf(moments.cols[col]));
    sums[0] += update * update;
    if (param == nullptr) return;
    const double value = static_cast<double>(param[at]);
    sums[1] += value * value;
  }
};

// partials [blocks, 2]
__global__ void __launch_bounds__(kThreads)
    PartialNormsKernel(Run run, Measured measured, double* partials) {
  if (!measured.gradient_scale.Load()) return;
  ForEachElement(run, measured);
  for (int which = 0; which < 2; ++which) {
    const double sum = ReduceBlock(SumOf{}, measured.sums[which]);
    if (threadIdx.x == 0) partials[2 * blockIdx.x + which] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    NormsKernel(GradientScale scale, const double* partials, int count, float* norms) {
  if (!scale.Load()) return;
  for (int which = 0; which < 2; ++which) {
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      sum += partials[2 * i + which];
    }
    sum = ReduceBlock(SumOf{}, sum);
    if (threadIdx.x == 0) norms[which] = static_cast<float>(sum);
  }
}

struct Updated {
  const float* gradient;
  float* param;
  Factors moments;
  GradientScale gradient_scale;
  double size;  // the gradient's scale and what u is multiplied by
  float scale, decay;

  __device__ void Begin(int64_t row) { scale = ScaleOfRow(moments, row, size); }
  __device__ void Take(int64_t at, int64_t col) {
    const float p = param[at];
    param[at] = p - (gradient[at] * scale / sqrtf(moments.cols[col]) + decay * p);
  }
};

__device__ double Rms(float squares, int64_t elements) {
  return sqrt(static_cast<double>(squares) / static_cast<double>(elements));
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(Run run, AdafactorParameters adafactor, const float* norms, Updated updated) {
  if (!updated.gradient_scale.Load()) return;
  double lr = adafactor.lr;
  if (adafactor.scale_parameter) {
    lr *= max(kAdafactorParameterEps, Rms(norms[1], adafactor.elements));
  }
  const double clipped = max(1.0, Rms(norms[0], adafactor.elements) / adafactor.clip_threshold);
  updated.size = updated.gradient_scale.value * (lr / clipped);
  updated.decay = static_cast<float>(lr * adafactor.weight_decay);
  ForEachElement(run, updated);
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

cudaError_t QueueSquares(const Queue& queue, View gradient_scale, View gradient, int64_t begin,
                         const FactoredView& sums) {
  const Run run = RunOf(gradient, begin, sums);
  if (sums.rows.data != nullptr) {
    const cudaError_t code =
        Launch(RowSquaresKernel, {.blocks = std::min(kMostBlocks, run.rows), .threads = kThreads},
               queue.stream, run, Floats(gradient), ScaleAt(gradient_scale), Floats(sums.rows));
    if (code != cudaSuccess) return code;
  }
  return QueueColumnSquares(queue, gradient_scale, gradient, begin % run.cols, sums.cols);
}

cudaError_t QueueMoments(const Queue& queue, double beta, View gradient_scale,
                         const FactoredView& sums, const FactoredView& moments) {
  const int64_t rows = moments.rows.data == nullptr ? 0 : moments.rows.elements();
  return Launch(MomentsKernel, {.threads = kMomentThreads}, queue.stream, beta,
                ScaleAt(gradient_scale), rows, moments.cols.elements(), FactorsOf(sums),
                FactorsOf(moments));
}

cudaError_t QueueNorms(const Queue& queue, const AdafactorParameters& adafactor, View gradient,
                       View param, int64_t begin, const FactoredView& moments, View norms) {
  const Run run = RunOf(gradient, begin, moments);
  const int64_t blocks = std::min(kMostPartials, run.rows);
  if (queue.scratch_bytes < 2 * kMostPartials * static_cast<int64_t>(sizeof(double))) {
    return cudaErrorInvalidValue;
  }
  auto* const partials = static_cast<double*>(queue.scratch);
  const Measured measured = {.gradient = Floats(gradient),
                             .param = adafactor.scale_parameter ? Floats(param) : nullptr,
                             .moments = FactorsOf(moments),
                             .gradient_scale = ScaleAt(adafactor.gradient_scale),
                             .scale = 0,
                             .sums = {}};
  const cudaError_t code = Launch(PartialNormsKernel, {.blocks = blocks, .threads = kThreads},
                                  queue.stream, run, measured, partials);
  if (code != cudaSuccess) return code;
  return Launch(NormsKernel, {.threads = kThreads}, queue.stream, measured.gradient_scale, partials,
                static_cast<int>(blocks), Floats(norms));
}

cudaError_t QueueUpdate(const Queue& queue, const AdafactorParameters& adafactor, View gradient,
                        View param, int64_t begin, const FactoredView& moments, View norms) {
  const Run run = RunOf(gradient, begin, moments);
  const Updated updated = {.gradient = Floats(gradient),
                           .param = Floats(param),
                           .moments = FactorsOf(moments),
                           .gradient_scale = ScaleAt(adafactor.gradient_scale),
                           .size = 0,
                           .scale = 0,
                           .decay = 0};
  // Few rows: several blocks to each.
  const int64_t blocks = std::min(kMostBlocks, run.rows);
  const int64_t blocks_y = std::min(kMostBlocks / blocks, (run.cols + kThreads - 1) / kThreads);
  return Launch(UpdateKernel, {.blocks = blocks, .blocks_y = blocks_y, .threads = kThreads},
                queue.stream, run, adafactor, Floats(norms), updated);
}

class CudaAdafactor final : public AdafactorSteps {
 public:
  CudaAdafactor(const Queue& queue, FirstFailure& failure) : queue_(queue), failure_(failure) {}

  void Squares(View gradient_scale, View gradient, int64_t begin,
               const FactoredView& sums) override {
    if (!failure_.Require(FitsAdafactorSquares(gradient_scale, gradient, begin, sums),
                          "AdafactorSquares", gradient)) {
      return;
    }
    KeepFailure(QueueSquares(queue_, gradient_scale, gradient, begin, sums), "AdafactorSquares",
                failure_);
  }
  void Moments(double beta, View gradient_scale, const FactoredView& sums,
               const FactoredView& moments) override {
    if (!failure_.Require(FitsAdafactorMoments(gradient_scale, sums, moments), "AdafactorMoments",
                          moments.cols)) {
      return;
    }
    KeepFailure(QueueMoments(queue_, beta, gradient_scale, sums, moments), "AdafactorMoments",
                failure_);
  }
  void Norms(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
             const FactoredView& moments, View norms) override {
    if (!failure_.Require(FitsAdafactorNorms(adafactor, gradient, param, begin, moments, norms),
                          "AdafactorNorms", param)) {
      return;
    }
    KeepFailure(QueueNorms(queue_, adafactor, gradient, param, begin, moments, norms),
                "AdafactorNorms", failure_);
  }
  void Update(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
              const FactoredView& moments, View norms) override {
    if (!failure_.Require(FitsAdafactorUpdate(adafactor, gradient, param, begin, moments, norms),
                          "AdafactorUpdate", param)) {
      return;
    }
    KeepFailure(QueueUpdate(queue_, adafactor, gradient, param, begin, moments, norms),
                "AdafactorUpdate", failure_);
  }

 private:
  const Queue& queue_;
  FirstFailure& failure_;
};

}  // namespace

std::unique_ptr<AdafactorSteps> MakeCudaAdafactor(const Queue& queue, FirstFailure& failure) {
  return std::make_unique<CudaAdafactor>(queue, failure);
}

}  // namespace weft
