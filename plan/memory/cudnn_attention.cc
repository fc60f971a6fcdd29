#include "plan/memory/cudnn_attention.h"

#include <algorithm>

namespace weft {
namespace {

// The alignment is that of worker/backend/cuda/attention/attention_graphs.cc.
constexpr int64_t kAlignment = 256;
constexpr int64_t kBytesBeforeTheFirst = 192;  // the arena aligns to 64 alone

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A length in 32 bits, and offsets of queries, keys and statistics in 64.
int64_t TableBytes(int64_t documents) {
  return documents == 0 ? 0 : Aligned(documents * 4) + 3 * Aligned((documents + 1) * 8);
}

// Without gradients of heads that share keys: of documents the kernel keeps descriptors of its
// copies, three and a half for each.
int64_t WorkspaceBytes(int64_t documents) {
  return documents == 0 ? kAlignment : 1152 + 448 * documents;
}

}  // namespace

bool IsHeadOfCudnn(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128;
}

std::vector<int64_t> DocumentBounds(int64_t batch, int64_t seq_len) {
  constexpr int64_t kTokensPerDocument = 256;
  const int64_t most = std::min(seq_len, std::max<int64_t>(4, seq_len / kTokensPerDocument));
  std::vector<int64_t> bounds;
  for (int64_t each = 1; each <= most; each *= 2) bounds.push_back(batch * each);
  return bounds;
}

int64_t CudnnAttentionScratchFloats(const CudnnAttentionCall& call) {
  const int64_t rows = call.batch * call.heads * call.seq_len;
  const int64_t of_heads = rows * call.head_dim * 2;
  int64_t shared = 0;
  if (call.heads != call.kv_heads) {
    shared = 2 * (call.documents == 0 ? of_heads : Aligned(of_heads));
  }
  const int64_t bytes = kBytesBeforeTheFirst + TableBytes(call.documents) +
                        Aligned(rows * call.head_dim * 4) + Aligned(rows * 4) + shared +
                        WorkspaceBytes(call.documents) + kCudnnAttentionSlackBytes;
  return bytes / 4;
}

}  // namespace weft
