// Model FLOPs: what the mathematics of a step takes, whatever is computed again or padded, and the
// rate and the utilisation (MFU) that a speed amounts to. For comparison with published runs; no
// price is made of it. Pure.
#pragma once
#include "plan/estimate/question.h"

namespace weft {

// Returns the FLOPs of a token, forward and backward: 6 N + 12 L q T, with N the parameters of
// matrix products, head included (of experts those that a token is sent to), q heads x their size,
// T the sequence, and attention over all pairs, causal or not (PaLM, arXiv:2204.02311, appendix B).
// 4 N where the base is frozen, as its weights have no gradients.
double ModelFlopsPerToken(const Question& question);

struct ModelFlopRate {
  double flops_per_s = 0;  // of each worker
  double peak_flops_per_s =
      0;  // of its device: dense products in fp32, or in bf16 also of fp8 steps
  double utilisation() const { return flops_per_s / peak_flops_per_s; }
};
// Returns the rate of `workers` that together do `tokens_per_s`. REQUIRES: workers >= 1, the device
// offers the precision.
ModelFlopRate ModelFlopRateOf(const Question& question, double tokens_per_s, int workers);

}  // namespace weft
