#include "worker/backend/blas_kernels.h"

#include <strings.h>

#include <algorithm>
#include <array>

namespace weft {
namespace {

enum class Vectors { kOlder, kAvx2, kAvx512, kAvx512Bf16 };

struct Kernels {
  const char* name;
  Vectors needs;
};

// Lists the kernels of OpenBLAS 0.3.21 for 64 bits (driver/others/dynamic.c). kOlder: every
// processor that weft is likely to meet has what they need.
constexpr std::array<Kernels, 18> kKernels = {{{"Prescott", Vectors::kOlder},
                                               {"Core2", Vectors::kOlder},
                                               {"Penryn", Vectors::kOlder},
                                               {"Dunnington", Vectors::kOlder},
                                               {"Nehalem", Vectors::kOlder},
                                               {"Opteron", Vectors::kOlder},
                                               {"Opteron_SSE3", Vectors::kOlder},
                                               {"Barcelona", Vectors::kOlder},
                                               {"Nano", Vectors::kOlder},
                                               {"Atom", Vectors::kOlder},
                                               {"Sandybridge", Vectors::kOlder},
                                               {"Bobcat", Vectors::kOlder},
                                               {"Haswell", Vectors::kAvx2},
                                               {"Excavator", Vectors::kAvx2},
                                               {"Zen", Vectors::kAvx2},
                                               {"SkylakeX", Vectors::kAvx512},
                                               {"Cooperlake", Vectors::kAvx512Bf16},
                                               {"SapphireRapids", Vectors::kAvx512Bf16}}};

Vectors WidestOf(const ProcessorFeatures& features) {
  if (features.avx512) return features.avx512_bf16 ? Vectors::kAvx512Bf16 : Vectors::kAvx512;
  return features.avx2 ? Vectors::kAvx2 : Vectors::kOlder;
}

const char* VectorsText(Vectors vectors) {
  switch (vectors) {
    case Vectors::kOlder:
      return "older processors";
    case Vectors::kAvx2:
      return "AVX2";
    case Vectors::kAvx512:
      return "AVX-512";
    case Vectors::kAvx512Bf16:
      return "AVX-512 with bf16";
  }
  return "";
}

}  // namespace

const char* BlasKernelsFor(const ProcessorFeatures& features) {
  if (!features.intel) return "";
  if (features.avx512) return "SkylakeX";
  return features.avx2 ? "Haswell" : "";
}

BlasChoice ChooseBlasKernels(const ProcessorFeatures& features, const std::string& asked) {
  const std::string own = BlasKernelsFor(features);
  if (asked.empty()) return {own, ""};
  const auto* const found = std::find_if(kKernels.begin(), kKernels.end(), [&](const Kernels& set) {
    return strcasecmp(set.name, asked.c_str()) == 0;
  });
  const std::string variable = "OPENBLAS_CORETYPE=" + asked;
  if (found == kKernels.end()) {
    return {own, variable + " is ignored: OpenBLAS 0.3.21 has no such kernels"};
  }
  const Vectors widest = WidestOf(features);
  if (found->needs > widest) {
    return {own, variable + " is ignored: its kernels need " + VectorsText(found->needs) +
                     ", and this processor does not have it"};
  }
  // Kernels for bf16 multiply in single precision as those for AVX-512 do.
  if (found->needs == widest || found->needs >= Vectors::kAvx512) return {asked, ""};
  return {asked, variable + " takes kernels for " + VectorsText(found->needs) +
                     " on a processor with " + VectorsText(widest) +
                     ": products take up to twice as long; unset it"};
}

}  // namespace weft
