#include "worker/backend/blas_kernels.h"

#include <cstdlib>

namespace weft {

ProcessorFeatures FeaturesOfThisProcessor() {
  ProcessorFeatures features;
  __builtin_cpu_init();
  features.intel = __builtin_cpu_is("intel") != 0;
  features.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  features.avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0;
  return features;
}

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
