#include "plan/shards/batch_order.h"

#include "plan/errors.h"

namespace weft {

int64_t FirstSample(const Layout& layout, int64_t step, int dp_index, int64_t microbatch) {
  CHECK(step >= 1 && dp_index >= 0 && dp_index < layout.dp);
  CHECK(microbatch >= 0 && microbatch < layout.gradient_accumulation_steps);
  const int64_t per_replica = layout.micro_batch_size * layout.gradient_accumulation_steps;
  const int64_t step_start = (step - 1) * per_replica * layout.dp;
  return step_start + dp_index * per_replica + microbatch * layout.micro_batch_size;
}

SequencePieces SequencePiecesOf(const Layout& layout, int cp_index) {
  CHECK(cp_index >= 0 && cp_index < layout.cp);
  if (layout.cp == 1) return {};
  const int64_t runs = 2 * int64_t{layout.cp};
  return {.runs = runs, .pieces = {cp_index, runs - 1 - cp_index}};
}

std::vector<int64_t> PositionsOf(const Layout& layout, int64_t seq_len, int cp_index) {
  const SequencePieces held = SequencePiecesOf(layout, cp_index);
  CHECK(seq_len % held.runs == 0);
  const int64_t run_len = seq_len / held.runs;
  std::vector<int64_t> positions;
  for (const int64_t piece : held.pieces) {
    for (int64_t i = 0; i < run_len; ++i) positions.push_back(piece * run_len + i);
  }
  return positions;
}

}  // namespace weft
