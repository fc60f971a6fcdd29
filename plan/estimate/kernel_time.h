// Seconds of single kernels on a device: matrix products by shape, attention, streaming. Pure.
#pragma once
#include "plan/estimate/machine.h"

namespace weft {

// [m, k] x [k, n]. At least the time to move the three matrices. Where the machine's products were
// measured (`weft calibrate`), the model is corrected by the nearest measured shape.
double MatmulSeconds(const Machine& machine, double m, double n, double k);

// The three products of a linear layer's [n, k] weight over m tokens.
struct LinearSeconds {
  double forward_s = 0;
  double input_gradient_s = 0;
  double weight_gradient_s = 0;
};
LinearSeconds LinearLayer(const Machine& machine, double m, double n, double k);

double StreamingSeconds(const Machine& machine, double bytes);

}  // namespace weft
