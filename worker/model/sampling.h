// NextToken: which token follows, given the logits. Pure: the same logits, options and position
// give the same token, on any machine.
#pragma once
#include <cstdint>

#include "absl/types/span.h"

namespace weft {

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // of the likeliest so many; 0: of all
  double top_p = 1;        // of the likeliest whose probabilities reach this sum
  uint64_t seed = 0;
};

// Draws from softmax(logits / temperature), cut to the top_k likeliest tokens and then to the
// fewest likeliest of these that hold top_p of their probability (Holtzman et al.,
// arXiv:1904.09751). Of equal logits the smaller id counts as likelier. The number drawn is word 0
// and 1 of Philox4x32-10 at counter `index`, keyed by the seed. Returns -1 if a logit is not
// finite. REQUIRES: logits not empty, temperature >= 0, 0 < top_p <= 1.
int32_t NextToken(absl::Span<const float> logits, const SamplingOptions& options, int64_t index);

}  // namespace weft
