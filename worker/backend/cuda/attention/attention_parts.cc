#include "worker/backend/cuda/attention/attention_parts.h"

#include <algorithm>

namespace weft {

std::vector<AttentionPart> PartsOf(const AttentionShape& shape) {
  const int64_t run_len = shape.run_len();
  std::vector<AttentionPart> parts;
  for (int64_t i = 0; i < shape.pieces; ++i) {
    parts.push_back(
        {.query_at = i * run_len, .queries = run_len, .keys = (shape.piece[i] + 1) * run_len});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const AttentionPart& a, const AttentionPart& b) { return a.keys > b.keys; });
  for (size_t i = 1; i < parts.size(); ++i) parts[i].adds = true;
  return parts;
}

}  // namespace weft
