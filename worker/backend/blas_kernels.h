// Which of OpenBLAS's kernels serve this processor, where OpenBLAS does not know it. Debian 12's
// (0.3.21) asks Intel's processors for their model, and takes one that is newer than itself, such
// as an Emerald Rapids (family 6, model 207), for a Prescott of 2004: SSE3 instead of AVX-512.
#pragma once
#include "worker/backend/processor.h"

namespace weft {

// OpenBLAS's name of the kernels; empty: its own choice, which is sound for other makers.
const char* BlasKernelsFor(const ProcessorFeatures& features);

// Tells OpenBLAS by its variable OPENBLAS_CORETYPE, unless the user has. To be called before the
// library is loaded, by the only thread.
void ChooseBlasKernels();

}  // namespace weft
