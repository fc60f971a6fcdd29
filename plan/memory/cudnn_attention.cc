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

// Positions of each sequence that one kernel takes.
struct Kernel {
  int64_t queries = 0;
  int64_t keys = 0;
  bool adds = false;  // the gradients of its keys to what another has written
};

int64_t KernelBytes(const CudnnAttentionCall& call, const Kernel& kernel) {
  const int64_t rows = call.batch * call.heads * kernel.queries;
  const int64_t of_heads = call.batch * call.heads * kernel.keys * call.head_dim * 2;
  const int64_t of_keys = call.batch * call.kv_heads * kernel.keys * call.head_dim * 2;
  int64_t shared = 0;
  if (call.heads != call.kv_heads) {
    shared = 2 * (call.documents == 0 ? of_heads : Aligned(of_heads));
  }
  return TableBytes(call.documents) + Aligned(rows * call.head_dim * 4) + Aligned(rows * 4) +
         shared + (kernel.adds ? 2 * Aligned(of_keys) : 0) + WorkspaceBytes(call.documents);
}

}  // namespace

bool IsHeadOfCudnn(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128;
}

bool AreRunsOfCudnn(int64_t seq_len, int64_t cp, bool masks_documents) {
  constexpr int64_t kTile = 128;
  return cp == 1 || (!masks_documents && seq_len / (2 * cp) % kTile == 0);
}

std::vector<int64_t> DocumentBounds(int64_t batch, int64_t seq_len) {
  constexpr int64_t kTokensPerDocument = 256;
  const int64_t most = std::min(seq_len, std::max<int64_t>(4, seq_len / kTokensPerDocument));
  std::vector<int64_t> bounds;
  for (int64_t each = 1; each <= most; each *= 2) bounds.push_back(batch * each);
  return bounds;
}

int64_t CudnnAttentionScratchFloats(const CudnnAttentionCall& call) {
  int64_t kernels = KernelBytes(call, {.queries = call.seq_len, .keys = call.seq_len});
  if (call.cp > 1) {
    const int64_t run_len = call.seq_len / (2 * call.cp);
    const Kernel last = {.queries = run_len, .keys = call.seq_len};
    const Kernel first = {.queries = run_len, .keys = call.seq_len / 2, .adds = true};
    kernels = std::max(KernelBytes(call, last), KernelBytes(call, first));
  }
  return (kBytesBeforeTheFirst + kernels + kCudnnAttentionSlackBytes) / 4;
}

}  // namespace weft
