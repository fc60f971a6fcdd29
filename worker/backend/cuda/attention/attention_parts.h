// AttentionPart says what one kernel of cuDNN's computes of a call. Its causal mask knows queries
// that are the last of the positions which they see, so a rank that holds two runs of each sequence
// (cp) takes two kernels, one for each run, over the keys up to that run's end. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "worker/backend/device.h"

namespace weft {

struct AttentionPart {
  int64_t query_at = 0;  // the first one's place among a sequence's Tq
  int64_t queries = 0;   // of each sequence
  int64_t keys = 0;      // from a sequence's first position on; its last query sees all of them
  // Another part has written the gradients of these keys: this one leaves its own in scratch,
  // [B, keys, K*E], from where they are added.
  bool adds = false;
};

// Returns the parts of a call in the order in which they run: that which sees most keys comes
// first, as it writes the gradients that the others add to.
std::vector<AttentionPart> PartsOf(const AttentionShape& shape);

}  // namespace weft
