#include "worker/backend/blas_kernels.h"

#include <cstdlib>

namespace weft {

const char* BlasKernelsFor(const ProcessorFeatures& features) {
  if (!features.intel) return "";
  if (features.avx512) return "SkylakeX";
  return features.avx2 ? "Haswell" : "";
}

void ChooseBlasKernels() {
  const char* const kernels = BlasKernelsFor(FeaturesOfThisProcessor());
  if (*kernels != 0) setenv("OPENBLAS_CORETYPE", kernels, /*overwrite=*/0);
}

}  // namespace weft
