#include "plan/block/flops.h"

#include <cstddef>

#include "plan/block/block_ops.h"

namespace weft {

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
  // q k^T and the sum over v: 2 * T * H * E each over all pairs; causality needs half of them.
  return 2 * weights + static_cast<double>(seq_len) * attended;
}

double HeadForwardFlopsPerToken(const ModelShape& model) {
  return 2 * static_cast<double>(model.hidden_size) * static_cast<double>(model.vocab_size);
}

}  // namespace weft
