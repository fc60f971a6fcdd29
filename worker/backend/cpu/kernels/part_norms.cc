// Sums are taken in double, as in rms_norm.cc.
#include "worker/backend/cpu/kernels/part_norms.h"

#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/operands.h"

namespace weft {
namespace {

template <typename T>
WEFT_CLONES void SquaresOfRows(const T* x, double factor, float* means, int64_t rows,
                               int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x_row = x + row * cols;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < cols; ++i) {
      const double value = static_cast<double>(Widen(x_row[i]));
      squares += value * value;
    }
    means[row] = static_cast<float>(factor * squares);
  }
}

template <typename T>
WEFT_CLONES void RmsNormPartRows(const T* x, const T* weight, const NormConstants& constants, T* y,
                                 float* rstd, int64_t rows, int64_t cols) {
  const auto offset = static_cast<float>(constants.offset);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x_row = x + row * cols;
    T* const y_row = y + row * cols;
    const auto row_rstd =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(rstd[row]) + constants.eps));
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      Narrow(Widen(x_row[i]) * row_rstd * (offset + Widen(weight[i])), y_row + i);
    }
    rstd[row] = row_rstd;
  }
}

template <typename T>
WEFT_CLONES void RmsNormProductsOfRows(const T* dy, const T* x, const T* weight, float offset,
                                       const float* rstd, double factor, float* means, int64_t rows,
                                       int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * cols;
    const T* const x_row = x + row * cols;
    const float row_rstd = rstd[row];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      sum += static_cast<double>(g * (Widen(x_row[i]) * row_rstd));
    }
    means[row] = static_cast<float>(factor * sum);
  }
}

// dx += rstd (g - n mean(g n)), as rms_norm.cc has it.
template <typename T>
WEFT_CLONES void RmsNormPartInputGradient(const T* dy, const T* x, const T* weight, float offset,
                                          const float* rstd, const float* means, T* dx,
                                          int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * cols;
    const T* const x_row = x + row * cols;
    T* const dx_row = dx + row * cols;
    const float row_rstd = rstd[row];
    const float mean_gn = means[row];
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      Narrow(Widen(dx_row[i]) + row_rstd * (g - Widen(x_row[i]) * row_rstd * mean_gn), dx_row + i);
    }
  }
}

class CpuPartNorms final : public PartNorms {
 public:
  CpuPartNorms(const Threads& threads, FirstFailure& failure)
      : threads_(threads), failure_(failure) {}

  void Squares(View x, double factor, View means) override {
    if (!failure_.Require(IsActivation(x) && IsVector(means, x.rows), "PartNorms::Squares", x)) {
      return;
    }
    ForRowsOf(x, [&](auto element, int64_t first, int64_t rows) {
      using T = decltype(element);
      SquaresOfRows(Row<T>(x, first), factor, Floats(means) + first, rows, x.cols);
    });
  }
  void Norm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    if (!failure_.Require(FitsRmsNorm(x, weight, y, rstd), "PartNorms::Norm", x)) return;
    ForRowsOf(x, [&](auto element, int64_t first, int64_t rows) {
      using T = decltype(element);
      RmsNormPartRows(Row<T>(x, first), Data<T>(weight), constants, Row<T>(y, first),
                      Floats(rstd) + first, rows, x.cols);
    });
  }
  void Products(View dy, View x, View weight, const NormConstants& constants, View rstd,
                double factor, View means) override {
    if (!failure_.Require(SameShape(x, {dy}) && FitsRmsNormPart(x, weight, rstd, means),
                          "PartNorms::Products", x)) {
      return;
    }
    ForRowsOf(x, [&](auto element, int64_t first, int64_t rows) {
      using T = decltype(element);
      RmsNormProductsOfRows(Row<T>(dy, first), Row<T>(x, first), Data<T>(weight),
                            static_cast<float>(constants.offset), Floats(rstd) + first, factor,
                            Floats(means) + first, rows, x.cols);
    });
  }
  void Gradient(View dy, View x, View weight, const NormConstants& constants, View rstd, View means,
                View dx, View dweight) override {
    if (!failure_.Require(FitsRmsNormGradient(dy, x, weight, rstd, dx, dweight) &&
                              FitsRmsNormPart(x, weight, rstd, means),
                          "PartNorms::Gradient", x)) {
      return;
    }
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      threads_.ForEach(x.cols, kVectorElements, x.rows, [&](int64_t first, int64_t cols) {
        RmsNormWeightGradient(Data<T>(dy) + first, Data<T>(x) + first, x.cols, Floats(rstd),
                              Floats(dweight) + first, x.rows, cols);
      });
    });
    ForRowsOf(x, [&](auto element, int64_t first, int64_t rows) {
      using T = decltype(element);
      RmsNormPartInputGradient(Row<T>(dy, first), Row<T>(x, first), Data<T>(weight),
                               static_cast<float>(constants.offset), Floats(rstd) + first,
                               Floats(means) + first, Row<T>(dx, first), rows, x.cols);
    });
  }

 private:
  // Calls work(an element, first, count) for pieces of the rows.
  template <typename Work>
  void ForRowsOf(View x, const Work& work) const {
    WithElement(x.dtype, [&](auto element) {
      threads_.ForEach(x.rows, 1, x.cols,
                       [&](int64_t first, int64_t rows) { work(element, first, rows); });
    });
  }

  const Threads& threads_;
  FirstFailure& failure_;
};

}  // namespace

std::unique_ptr<PartNorms> MakeCpuPartNorms(const Threads& threads, FirstFailure& failure) {
  return std::make_unique<CpuPartNorms>(threads, failure);
}

}  // namespace weft
