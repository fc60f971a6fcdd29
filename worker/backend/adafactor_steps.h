// AdafactorSteps: the update of Adafactor, of parts of tensors in four calls each; the caller adds
// up what the first and the third say of parts that are elsewhere. What updates.h says of the
// gradient's scale and of failures holds here, too.
//
// This header crosses a shared-object boundary, as device.h.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"
#include "worker/backend/updates.h"

namespace weft {

// Holds, for a matrix, a number for each row [1, rows] and each column [1, cols]; for a vector,
// which is one row, a number for each element: `cols` alone, rows has no data. f32.
struct FactoredView {
  View rows;
  View cols;
  View row_mean = {};  // [1, 1] of moments: of the rows of the whole tensor; 1 for a vector
};

// Adafactor (Shazeer & Stern, arXiv:1804.04235, algorithms 4 and 5) without a first moment, as
// Hugging Face's transformers.optimization.Adafactor defines it with relative_step false. Of a
// tensor's gradient g [rows, cols], after gradient_scale, at the update t, counted from 1:
//
//   beta = 1 - t^decay_rate
//   R_i = beta R_i + (1 - beta) (mean over j of g_ij^2 + 1e-30)
//   C_j = beta C_j + (1 - beta) (mean over i of g_ij^2 + 1e-30)
//   u_ij = g_ij / sqrt(R_i C_j / mean(R)); of a vector g_j / sqrt(C_j), C_j that of its element
//   lr' = lr, or lr max(1e-3, rms(p)) if scale_parameter
//   p -= lr' (u / max(1, rms(u) / clip_threshold) + weight_decay p)
//
// rms: root mean square over the whole tensor.
struct AdafactorParameters {
  double lr = 0;
  double clip_threshold = 1;
  bool scale_parameter = false;
  double weight_decay = 0;
  View gradient_scale = {};  // as GradientScale leaves it
  int64_t elements = 0;      // of the whole tensor
};
inline constexpr double kAdafactorSquareEps = 1e-30;
inline constexpr double kAdafactorParameterEps = 1e-3;

class AdafactorSteps {
 public:
  virtual ~AdafactorSteps() = default;

  // gradient, param [1, n]: n neighbours, row-major, of a box of the tensor, from the box's element
  // `begin`; what a FactoredView holds is the box's, but in Moments the whole tensor's.

  // sums += squares of gradient_scale * gradient, by row and by column.
  virtual void Squares(View gradient_scale, View gradient, int64_t begin,
                       const FactoredView& sums) = 0;
  // R and C from the sums; row_mean is written.
  virtual void Moments(double beta, View gradient_scale, const FactoredView& sums,
                       const FactoredView& moments) = 0;
  // norms [1, 2] is written: sums of the squares of u and, if scale_parameter, of param; else 0.
  virtual void Norms(const AdafactorParameters& adafactor, View gradient, View param, int64_t begin,
                     const FactoredView& moments, View norms) = 0;
  // param is updated in place; norms: the whole tensor's.
  virtual void Update(const AdafactorParameters& adafactor, View gradient, View param,
                      int64_t begin, const FactoredView& moments, View norms) = 0;
};

// Tells whether `run` is elements, from `begin`, of a box whose rows and columns `box` describes.
inline bool IsRunOf(const FactoredView& box, View run, int64_t begin) {
  const int64_t cols = box.cols.elements();
  const int64_t rows = box.rows.data == nullptr ? 1 : box.rows.elements();
  return run.elements() >= 1 && begin >= 0 && begin + run.elements() <= rows * cols &&
         IsVector(run, run.elements()) && IsVector(box.cols, cols) &&
         (box.rows.data == nullptr || IsVector(box.rows, rows));
}
inline bool FitsAdafactorSquares(View gradient_scale, View gradient, int64_t begin,
                                 const FactoredView& sums) {
  return IsScale(gradient_scale) && IsRunOf(sums, gradient, begin);
}
inline bool FitsAdafactorMoments(View gradient_scale, const FactoredView& sums,
                                 const FactoredView& moments) {
  const int64_t rows = moments.rows.elements();
  const int64_t cols = moments.cols.elements();
  return IsScale(gradient_scale) && IsVector(moments.cols, cols) && IsVector(sums.cols, cols) &&
         IsVector(moments.row_mean, 1) &&
         (moments.rows.data == nullptr ||
          (IsVector(moments.rows, rows) && IsVector(sums.rows, rows)));
}
inline bool FitsAdafactorNorms(const AdafactorParameters& adafactor, View gradient, View param,
                               int64_t begin, const FactoredView& moments, View norms) {
  return FitsUpdate(adafactor.gradient_scale, param, {gradient}) &&
         IsRunOf(moments, gradient, begin) && IsVector(moments.row_mean, 1) && IsVector(norms, 2);
}
inline bool FitsAdafactorUpdate(const AdafactorParameters& adafactor, View gradient, View param,
                                int64_t begin, const FactoredView& moments, View norms) {
  return FitsAdafactorNorms(adafactor, gradient, param, begin, moments, norms) &&
         adafactor.elements >= param.elements();
}

}  // namespace weft
