// Shapes of attention for tests: what a rank of cp has of the sequences.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

inline AttentionShape OfLength(AttentionShape shape, int64_t seq_len) {
  shape.seq_len = seq_len;
  return shape;
}

// Two runs of each sequence, as a rank of cp holds them: the first and the last, two in the middle
// (of which none sees the last keys), and whatever lies between.
inline AttentionShape OnRank(AttentionShape shape, int64_t cp, int64_t rank) {
  shape.runs = 2 * cp;
  shape.pieces = 2;
  shape.piece[0] = rank;
  shape.piece[1] = shape.runs - 1 - rank;
  return shape;
}

}  // namespace weft
