// A type of GPU, as a site writes it in Slurm's gres.conf or Slurm finds it out by itself
// ("nvidia_h100_80gb_hbm3"), is held against the name of a profile's device ("H100-SXM-80GB").
// Pure.
#pragma once
#include "absl/strings/string_view.h"

namespace weft {

enum class GpuMatch { kSame, kOther, kUnknown };

// The rule, for both names, letter case aside: the model is the first number of two digits or more
// that letters stand right before ("h100"), or of four that none do ("rtx_4090", which has the word
// before it for them). kOther: the numbers differ, or the letters that stand right before both.
// kSame: all is equal, or one has no letters. kUnknown: a name has no such number, the word before
// one differs, or the letters behind it do ("a100l"): some sites write sizes so.
GpuMatch MatchGpu(absl::string_view type, absl::string_view device);

}  // namespace weft
