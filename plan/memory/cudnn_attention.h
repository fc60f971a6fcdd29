// cuDNN's attention kernels, where the CUDA backend takes them: their scratch memory, and how many
// packed documents they are made for. Pure.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

// A call on one rank: 16-bit elements, whole sequences, or of each two of 2 cp runs of queries with
// the keys of all. Letters: glossary.
struct CudnnAttentionCall {
  int64_t batch = 0;      // B
  int64_t seq_len = 0;    // T
  int64_t heads = 0;      // H_local
  int64_t kv_heads = 0;   // K_local
  int64_t head_dim = 0;   // E
  int64_t documents = 0;  // that the sequences are made of, at most; 0: nothing is masked by them
  int64_t cp = 1;
};

// Says whether the backend asks cuDNN about heads of that size at all.
bool IsHeadOfCudnn(int64_t head_dim);
// Says the same of the runs that context parallelism cuts sequences into; whole ones it takes.
bool AreRunsOfCudnn(int64_t seq_len, int64_t cp, bool masks_documents);

// Returns the numbers that a call's count of documents is rounded up to where documents do not see
// each other, ascending: 1, 2, 4, ... for each sequence, up to one for 256 tokens or to four. For
// each of these a kernel is compiled before the first step; steps of two are TransformerEngine's. A
// document is an entry of the kernel's batch, for which it starts tiles of T positions: with many
// short documents most tiles find nothing to do, so weft's own kernels, which start tiles of
// tokens, take calls that have more.
std::vector<int64_t> DocumentBounds(int64_t batch, int64_t seq_len);

// The slack goes beyond what cuDNN 9.19 takes: it is for another version, or another heuristic of
// it, that keeps one more statistic of each row (4 MiB for a million rows, a call of 32 heads and
// 32,768 tokens) or counters of its tiles. A copy of dq or dk more would be as much again as all of
// it: that is not set aside on suspicion, and the log warns where it is wanted.
inline constexpr int64_t kCudnnAttentionSlackBytes = int64_t{4} << 20;

// Floats that the gradient takes, which is more than the forward pass does (but for calls so small
// that the slack is more than both): dq before it is rounded, sums of dO * O, gradients of each of
// the heads that share keys, and the kernel's workspace; of packed documents, where each lies and
// its length; and the slack. Recorded from cuDNN 9.19's plans for compute capability 9.0, which
// 10.0 stays below (tests/gpu/cudnn_plans_test.cc); 8.0 and 8.9 want more, and the backend computes
// gradients by its own kernels there.
//
// Under context parallelism a rank's two runs are two kernels that take turns with the memory: the
// run that sees more keys writes their gradients, the other one's are in scratch until they are
// added. All ranks set aside what the largest take: the one whose last query sees all T keys, or
// the one whose first run sees half of them.
int64_t CudnnAttentionScratchFloats(const CudnnAttentionCall& call);

}  // namespace weft
