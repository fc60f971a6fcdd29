// The four steps of Device's Adafactor on a CPU. Each returns false, and does nothing, if its
// operands do not fit together.
#pragma once
#include <cstdint>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/device.h"

namespace weft {

bool AddSquares(const Threads& threads, View gradient_scale, View gradient, int64_t begin,
                const FactoredView& sums);
bool AverageSquares(double beta, View gradient_scale, const FactoredView& sums,
                    const FactoredView& moments);
bool MeasureUpdate(const Threads& threads, const AdafactorParameters& adafactor, View gradient,
                   View param, int64_t begin, const FactoredView& moments, View norms);
bool ApplyUpdate(const Threads& threads, const AdafactorParameters& adafactor, View gradient,
                 View param, int64_t begin, const FactoredView& moments, View norms);

}  // namespace weft
