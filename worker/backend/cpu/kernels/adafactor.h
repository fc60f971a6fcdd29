// The four steps of Device's Adafactor on a CPU; the caller has checked the operands.
#pragma once
#include <cstdint>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/device.h"

namespace weft {

void AddSquares(const Threads& threads, View gradient_scale, View gradient, int64_t begin,
                const FactoredView& sums);
void AverageSquares(double beta, View gradient_scale, const FactoredView& sums,
                    const FactoredView& moments);
void MeasureUpdate(const Threads& threads, const AdafactorParameters& adafactor, View gradient,
                   View param, int64_t begin, const FactoredView& moments, View norms);
void ApplyUpdate(const Threads& threads, const AdafactorParameters& adafactor, View gradient,
                 View param, int64_t begin, const FactoredView& moments, View norms);

}  // namespace weft
