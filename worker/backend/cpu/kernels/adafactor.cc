// Rows of a run are cut into pieces of neighbours, on which the loops work. Sums are taken in
// double, of squares that are too: gradients of 1e-20 count.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/operands.h"
#include "worker/backend/cpu/kernels/updates.h"

namespace weft {
namespace {

constexpr int64_t kTileColumns = 256;

WEFT_CLONES double SumOfScaledSquares(const float* x, float scale, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(x[i] * scale);
    sum += value * value;
  }
  return sum;
}

WEFT_CLONES void AddScaledSquares(const float* x, float scale, double* sums, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(x[i] * scale);
    sums[i] += value * value;
  }
}

// Returns the sum of squares of the updates gradient * scale / sqrt(moment).
WEFT_CLONES double SumOfUpdateSquares(const float* gradient, const float* moments, float scale,
                                      int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const auto update = static_cast<double>(gradient[i] * scale / std::sqrt(moments[i]));
    sum += update * update;
  }
  return sum;
}

WEFT_CLONES void UpdateRow(const float* gradient, const float* moments, float scale, float decay,
                           float* param, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    param[i] -= gradient[i] * scale / std::sqrt(moments[i]) + decay * param[i];
  }
}

WEFT_CLONES void Average(const float* sums, double terms, double beta, float* moments,
                         int64_t count) {
  const double rest = 1 - beta;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const double mean = static_cast<double>(sums[i]) / terms + kAdafactorSquareEps;
    moments[i] = static_cast<float>(beta * static_cast<double>(moments[i]) + rest * mean);
  }
}

// Elements [begin, end), row-major, of a box whose rows have `cols` elements.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t cols = 1;

  // Calls work(row, col, count, offset from `begin`) for the piece of each row.
  template <typename Work>
  void ForEachRow(const Work& work) const {
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / cols;
      const int64_t col = at - row * cols;
      const int64_t count = std::min(cols - col, end - at);
      work(row, col, count, at - begin);
      at += count;
    }
  }
};

// scale * sqrt(mean(R) / R_row): what a row's gradients are multiplied by.
float ScaleOfRow(const FactoredView& moments, int64_t row, double scale) {
  if (moments.rows.data == nullptr) return static_cast<float>(scale);
  return static_cast<float>(scale * std::sqrt(static_cast<double>(*Floats(moments.row_mean)) /
                                              static_cast<double>(Floats(moments.rows)[row])));
}

struct Step {
  double size = 0;   // what u is multiplied by
  double decay = 0;  // what the parameter is multiplied by
};

Step StepOf(const AdafactorParameters& adafactor, const float* norms) {
  const auto rms = [&](float squares) {
    return std::sqrt(static_cast<double>(squares) / static_cast<double>(adafactor.elements));
  };
  const double scale =
      adafactor.scale_parameter ? std::max(kAdafactorParameterEps, rms(norms[1])) : 1.0;
  const double lr = adafactor.lr * scale;
  return {.size = lr / std::max(1.0, rms(norms[0]) / adafactor.clip_threshold),
          .decay = lr * adafactor.weight_decay};
}

// Adds up the scaled squares of the columns [first, first + count), over all rows in order.
void AddColumnSquares(float scale, const float* gradient, const Run& run, int64_t first,
                      int64_t count, float* cols) {
  for (int64_t tile = first; tile < first + count; tile += kTileColumns) {
    const int64_t tile_end = std::min(first + count, tile + kTileColumns);
    double sums[kTileColumns] = {};
    run.ForEachRow([&](int64_t /*row*/, int64_t col, int64_t size, int64_t offset) {
      const int64_t begin = std::max(col, tile);
      const int64_t end = std::min(col + size, tile_end);
      if (begin >= end) return;
      AddScaledSquares(gradient + offset + begin - col, scale, sums + (begin - tile), end - begin);
    });
    for (int64_t col = tile; col < tile_end; ++col) {
      cols[col] += static_cast<float>(sums[col - tile]);
    }
  }
}

class CpuAdafactor final : public AdafactorSteps {
 public:
  CpuAdafactor(const Threads& threads, FirstFailure& failure)
      : threads_(threads), failure_(failure) {}

  void Squares(View gradient_scale, View gradient, int64_t begin,
               const FactoredView& sums) override;
  void Moments(double beta, View gradient_scale, const FactoredView& sums,
               const FactoredView& moments) override;
  void Norms(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
             const FactoredView& moments, View norms) override;
  void Update(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
              const FactoredView& moments, View norms) override;

 private:
  const Threads& threads_;
  FirstFailure& failure_;
};

void CpuAdafactor::Squares(View gradient_scale, View gradient, int64_t begin,
                           const FactoredView& sums) {
  if (!failure_.Require(FitsAdafactorSquares(gradient_scale, gradient, begin, sums),
                        "AdafactorSquares", gradient)) {
    return;
  }
  if (std::isnan(ScaleOf(gradient_scale))) return;
  const auto scale = static_cast<float>(ScaleOf(gradient_scale));
  const Run run = {begin, begin + gradient.elements(), sums.cols.elements()};
  const int64_t first_row = run.begin / run.cols;
  const int64_t rows = (run.end - 1) / run.cols - first_row + 1;
  if (sums.rows.data != nullptr) {
    threads_.ForEach(rows, 1, run.cols, [&](int64_t first, int64_t count) {
      const Run part = {std::max(run.begin, (first_row + first) * run.cols),
                        std::min(run.end, (first_row + first + count) * run.cols), run.cols};
      const float* const from = Floats(gradient) + (part.begin - run.begin);
      part.ForEachRow([&](int64_t row, int64_t /*col*/, int64_t size, int64_t offset) {
        Floats(sums.rows)[row] +=
            static_cast<float>(SumOfScaledSquares(from + offset, scale, size));
      });
    });
  }
  threads_.ForEach(run.cols, kVectorElements, rows, [&](int64_t first, int64_t count) {
    AddColumnSquares(scale, Floats(gradient), run, first, count, Floats(sums.cols));
  });
}

void CpuAdafactor::Moments(double beta, View gradient_scale, const FactoredView& sums,
                           const FactoredView& moments) {
  if (!failure_.Require(FitsAdafactorMoments(gradient_scale, sums, moments), "AdafactorMoments",
                        moments.cols)) {
    return;
  }
  const int64_t rows = moments.rows.data == nullptr ? 0 : moments.rows.elements();
  const int64_t cols = moments.cols.elements();
  if (std::isnan(ScaleOf(gradient_scale))) return;
  const double terms = static_cast<double>(std::max<int64_t>(1, rows));
  Average(Floats(sums.cols), terms, beta, Floats(moments.cols), cols);
  *Floats(moments.row_mean) = 1;
  if (rows == 0) return;
  Average(Floats(sums.rows), static_cast<double>(cols), beta, Floats(moments.rows), rows);
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += static_cast<double>(Floats(moments.rows)[row]);
  *Floats(moments.row_mean) = static_cast<float>(sum / terms);
}

void CpuAdafactor::Norms(const AdafactorParameters& adafactor, View gradient, View param,
                         int64_t begin, const FactoredView& moments, View norms) {
  if (!failure_.Require(FitsAdafactorNorms(adafactor, gradient, param, begin, moments, norms),
                        "AdafactorNorms", param)) {
    return;
  }
  const double scale = ScaleOf(adafactor.gradient_scale);
  if (std::isnan(scale)) return;
  const int64_t cols = moments.cols.elements();
  const double updates = threads_.Sum(param.elements(), [&](int64_t first, int64_t count) {
    double sum = 0;
    const Run run = {begin + first, begin + first + count, cols};
    run.ForEachRow([&](int64_t row, int64_t col, int64_t size, int64_t offset) {
      sum += SumOfUpdateSquares(Floats(gradient) + first + offset, Floats(moments.cols) + col,
                                ScaleOfRow(moments, row, scale), size);
    });
    return sum;
  });
  double params = 0;
  if (adafactor.scale_parameter) {
    params = threads_.Sum(param.elements(), [&](int64_t first, int64_t count) {
      return SumOfSquaresOf(Floats(param) + first, count);
    });
  }
  Floats(norms)[0] = static_cast<float>(updates);
  Floats(norms)[1] = static_cast<float>(params);
}

void CpuAdafactor::Update(const AdafactorParameters& adafactor, View gradient, View param,
                          int64_t begin, const FactoredView& moments, View norms) {
  if (!failure_.Require(FitsAdafactorUpdate(adafactor, gradient, param, begin, moments, norms),
                        "AdafactorUpdate", param)) {
    return;
  }
  if (std::isnan(ScaleOf(adafactor.gradient_scale))) return;
  const int64_t cols = moments.cols.elements();
  const Step step = StepOf(adafactor, Floats(norms));
  const double scale = ScaleOf(adafactor.gradient_scale) * step.size;
  threads_.ForEach(param.elements(), kVectorElements, 1, [&](int64_t first, int64_t count) {
    const Run run = {begin + first, begin + first + count, cols};
    run.ForEachRow([&](int64_t row, int64_t col, int64_t size, int64_t offset) {
      UpdateRow(Floats(gradient) + first + offset, Floats(moments.cols) + col,
                ScaleOfRow(moments, row, scale), static_cast<float>(step.decay),
                Floats(param) + first + offset, size);
    });
  });
}

}  // namespace

std::unique_ptr<AdafactorSteps> MakeCpuAdafactor(const Threads& threads, FirstFailure& failure) {
  return std::make_unique<CpuAdafactor>(threads, failure);
}

}  // namespace weft
