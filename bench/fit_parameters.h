// The constants of the time model that may be fitted, by name, with the range that makes sense.
#pragma once
#include <string>
#include <vector>

#include "plan/engine/constants.h"

namespace weft {

struct FitParameter {
  std::string name;  // "hopper.matmul_bf16"
  double* value;
  double least, most;
};

// REQUIRES: `constants` outlives the result.
std::vector<FitParameter> FitParameters(TimeConstants& constants);

}  // namespace weft
