// PartNorms: RMSNorm over rows of which each of several devices has a part of the columns. The
// caller sums what the first call of each pass says over the devices before the second one.
//
// This header crosses a shared-object boundary, as device.h, which says what elements and constants
// are, and what becomes of failures.
#pragma once
#include "worker/backend/device.h"

namespace weft {

// x, y, dy, dx [N, C] of one device; weight, dweight [1, C]; rstd, means [N, 1]. `factor`: 1 over
// the columns of all devices.
class PartNorms {
 public:
  virtual ~PartNorms() = default;

  // means = factor * the sum over a row of x^2.
  virtual void Squares(View x, double factor, View means) = 0;
  // As Device::RmsNorm, but that rstd holds mean(x^2) of whole rows before.
  virtual void Norm(View x, View weight, const NormConstants& constants, View y, View rstd) = 0;
  // means = factor * the sum over a row of dy (offset + weight) x rstd.
  virtual void Products(View dy, View x, View weight, const NormConstants& constants, View rstd,
                        double factor, View means) = 0;
  // As Device::RmsNormGradient, given those means of whole rows.
  virtual void Gradient(View dy, View x, View weight, const NormConstants& constants, View rstd,
                        View means, View dx, View dweight) = 0;
};

}  // namespace weft
