#include "plan/cudnn_attention.h"

namespace weft {
namespace {

// As worker/backend/cuda/attention_graphs.cc cuts it.
constexpr int64_t kAlignment = 256;
constexpr int64_t kBytesBeforeTheFirst = 192;  // the arena aligns to 64 alone

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

bool IsHeadOfCudnn(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128;
}

int64_t CudnnAttentionScratchFloats(const CudnnAttentionCall& call) {
  const int64_t rows = call.batch * call.heads * call.seq_len;
  const int64_t shared = call.heads == call.kv_heads ? 0 : 2 * rows * call.head_dim * 2;
  const int64_t bytes = kBytesBeforeTheFirst + Aligned(rows * call.head_dim * 4) +
                        Aligned(rows * 4) + kAlignment + shared + kCudnnAttentionSlackBytes;
  return bytes / 4;
}

}  // namespace weft
