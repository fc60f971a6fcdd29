// This file chooses which of OpenBLAS's kernels serve this processor. Debian 12's OpenBLAS (0.3.21)
// asks Intel's processors for their model, and takes one that is newer than itself, such as an
// Emerald Rapids (family 6, model 207), for a Prescott of 2004: SSE3 instead of AVX-512. A user may
// choose kernels by OPENBLAS_CORETYPE; those that the processor cannot execute would end the
// process by a signal.
//
// The file needs nothing but std: CMake runs it to learn under which kernels the tests can be run.
#pragma once
#include <string>

#include "worker/backend/processor.h"

namespace weft {

// OpenBLAS's name of the kernels; empty: its own choice, which is sound for other makers.
const char* BlasKernelsFor(const ProcessorFeatures& features);

struct BlasChoice {
  std::string kernels;  // for OPENBLAS_CORETYPE; empty: OpenBLAS's own choice
  std::string note;  // for people: what the user's choice costs, or why it is not taken; or empty
};

// `asked`: OPENBLAS_CORETYPE as it is set; empty if it is not. A user's choice is kept where the
// processor can execute it.
BlasChoice ChooseBlasKernels(const ProcessorFeatures& features, const std::string& asked);

}  // namespace weft
