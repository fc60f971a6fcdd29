#include "plan/block/flops.h"

#include <cstddef>

#include "plan/block/block_ops.h"

namespace weft {

double VisibleKeys(int64_t window, int64_t seq_len) {
  const auto length = static_cast<double>(seq_len);
  if (window == 0 || window >= seq_len) return length / 2;
  const auto seen = static_cast<double>(window);
  return seen - seen * seen / (2 * length);
}

double MeanVisibleKeys(const ModelShape& model, int64_t seq_len) {
  if (!model.slides_over(seq_len)) return VisibleKeys(0, seq_len);
  double sum = 0;
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    sum += VisibleKeys(model.window_of(block), seq_len);
  }
  return sum / static_cast<double>(model.num_blocks);
}

double BlockForwardFlopsPerToken(const ModelShape& model, int64_t block, int64_t seq_len) {
  const BlockOps ops = OpsOf(model, block);
  const auto columns = [&](int value) {
    return static_cast<double>(ops.values[static_cast<size_t>(value)].cols.count);
  };
  double weights = 0;
  double attended = 0;  // columns of queries and of what attention makes
  for (const BlockOp& op : ops.ops) {
    if (op.kind == OpKind::kAttention) attended += columns(op.in.front()) + columns(op.out.front());
    if (op.kind != OpKind::kLinear) continue;
    const BlockParam& weight = ops.params[static_cast<size_t>(op.params.front())];
    const int64_t times = weight.experts > 0 ? model.experts_per_token : 1;
    weights += static_cast<double>(times) * static_cast<double>(weight.out.count) *
               static_cast<double>(weight.in.count);
  }
  // q k^T and the sum over v: 2 * H * E each for every key that is seen.
  return 2 * weights + 2 * VisibleKeys(model.window_of(block), seq_len) * attended;
}

double HeadForwardFlopsPerToken(const ModelShape& model) {
  return 2 * static_cast<double>(model.hidden_size) * static_cast<double>(model.vocab_size);
}

}  // namespace weft
