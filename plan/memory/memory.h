// Every buffer a worker will ever allocate, as a list. The planner sums it; the worker's arena
// carves exactly it, by name, before step 1 and never again: predicted bytes are allocated bytes.
// With Layout::offload_optimizer, optimizer states and fp32 master weights are in host memory,
// which is summed by itself. Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/errors.h"
#include "plan/memory/block_memory.h"
#include "plan/shards/buckets.h"
#include "plan/shards/factored_moments.h"
#include "plan/shards/fused_linears.h"
#include "plan/shards/shard.h"
#include "plan/shards/whole_places.h"
#include "plan/spec/grid.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/numerics.h"
#include "plan/spec/words.h"

namespace weft {

enum class MemoryKind {
  kWeights,
  kGradients,
  kMasterWeights,  // fp32, beside weights of 16 bits
  kOptimizer,
  kActivations,    // saved by a forward pass for its backward pass, a slot per block
  kWorkspace,      // dies within one action; and the tables of rotary positions, a step's totals
  kCommunication,  // receive buffers; whole buckets of what ZeRO keeps in parts
  kTokens,         // ids and targets of the step, positions, starts of documents
};

Words WordsOf(MemoryKind);

// Each buffer starts on a multiple of this.
inline constexpr int64_t kBufferAlignmentBytes = 64;
inline int64_t AlignedBytes(int64_t elements, ElementType type) {
  const int64_t bytes = elements * ElementBytes(type);
  return (bytes + kBufferAlignmentBytes - 1) / kBufferAlignmentBytes * kBufferAlignmentBytes;
}

enum class MemoryHome { kDevice, kHost };

struct BufferSpec {
  MemoryKind kind = MemoryKind::kWeights;
  std::string name;  // "weights/blocks.0", "slot0/qkv", "work/dx"
  int64_t elements = 0;
  ElementType type = ElementType::kFp32;
  MemoryHome home = MemoryHome::kDevice;

  int64_t aligned_bytes() const { return AlignedBytes(elements, type); }
};

struct RankMemory {
  std::vector<BufferSpec> buffers;

  // Aligned sizes, on the device.
  int64_t bytes(MemoryKind kind) const;
  int64_t total_bytes() const;
  int64_t host_bytes() const;  // beside them
};

// Returns the numbers that a microbatch's count of documents is rounded up to
// (plan/memory/cudnn_attention.h), ascending. Empty: cuDNN is not asked about attention, or
// documents see each other.
std::vector<int64_t> DocumentBoundsOf(const ModelShape& model, const BatchShape& batch,
                                      const Layout& layout, const Numerics& numerics);

// One of the buffers of a bucket's model states, "<prefix>/<bucket>".
struct StateBuffer {
  MemoryKind kind = MemoryKind::kWeights;
  absl::string_view prefix;  // "weights", "gradients", "master", "exp_avg"
  int64_t elements = 0;
  ElementType type = ElementType::kFp32;
  MemoryHome home = MemoryHome::kDevice;
};

// Few, and asked for thousands of times in a search: kept without the heap.
class StateBuffers {
 public:
  void Add(const StateBuffer& buffer) {
    CHECK(count_ < buffers_.size());
    buffers_[count_++] = buffer;
  }
  size_t size() const { return count_; }
  const StateBuffer& operator[](size_t index) const { return buffers_[index]; }
  const StateBuffer* begin() const { return buffers_.data(); }
  const StateBuffer* end() const { return buffers_.data() + count_; }

 private:
  std::array<StateBuffer, 9> buffers_ = {};
  size_t count_ = 0;
};

// Returns the state buffers of a bucket of `elements` (Bucket::elements), whatever its tensors: a
// buffer that ZeRO cuts has one part, every other the whole run, as many parts as there are. `home`
// is that of master weights and optimizer states.
StateBuffers StateBuffersOf(int64_t elements, const Sharding& sharding, MemoryHome home,
                            const Numerics& numerics);

// WholeBuffersOf and StagingOf need these sizes of a stage's buckets (Bucket::elements).
struct BucketElements {
  int64_t end = 0;    // of embedding or head, the larger; 0: neither is here
  int64_t block = 0;  // of a block
  BucketCounts counts = {};
};
BucketElements BucketElementsOf(absl::Span<const Bucket> buckets);
// Returns the buffers of the places that buckets share (plan/shards/whole_places.h), and, where
// sums over a data group are narrow, of those where any bucket's gradients are summed.
// StateBuffer::prefix is "weights/<place>", "gradients/<place>" or "reduced/<place>".
StateBuffers WholeBuffersOf(const BucketElements& elements, const Layout& layout,
                            const Numerics& numerics);

// Says whether gradients are rounded to 16 bits in "whole/reduced/<place>" and summed there.
bool NarrowsSums(const Layout& layout, const Numerics& numerics);

// Offloaded states are staged on the device while the update works on them, so many elements of
// each bucket's own part at a time: "work/staging<place>/<prefix>", for each of StateBuffersOf's
// that is on the host.
struct StagingRoom {
  int64_t elements = 0;  // 0: nothing is offloaded
  int places = 0;        // that take turns: a stretch is copied while another one is updated
};
// A stretch is a block's part, or kMostStagedElements of it where that is larger. There are two
// places wherever there are two stretches to fill them to their ends.
inline constexpr int64_t kMostStagedElements = int64_t{4} << 20;
StagingRoom StagingOf(const BucketElements& elements, const Layout& layout,
                      const Numerics& numerics);
// StateBuffer::prefix is the state's; one place's.
StateBuffers StagingBuffersOf(const StagingRoom& staging, const Numerics& numerics);
// Says where a layout keeps optimizer states and fp32 master weights.
MemoryHome StatesHome(const Layout& layout);

// Returns the buffers that Adafactor keeps and needs for a rank's tensors, each one run over all of
// them in the order of BucketsOf; none for other optimizers. "exp_avg_sq_factors": their
// FactoredMoments. "comm/square_sums": as many, this step's. "comm/norms": two for each tensor.
// "work/row_means": one for each tensor. StateBuffer::prefix is the whole name.
StateBuffers FactoredBuffersOf(const FactoredTotals& totals, const Numerics& numerics);

// ActivationSlots counts how often a stage has what it keeps from forward passes for backward
// passes.
//
// A slot holds what one block keeps of one microbatch. A pass takes one for each block of its
// chunk, until its backward pass, weight gradients included, is done. Slots are no chunk's own and
// no pass needs neighbours, so there are no more than are in use at the fullest moment. (Slots of
// whole passes would all be as large as the largest chunk, or belong to chunks that are not at
// their fullest together.)
//
// Between the halves of a backward pass (zb_h1) a pass has one of `pending` places on top: for what
// its blocks do not keep, made again by the first half for both, and for the gradient of its
// output. A forward pass finds one free and works in its first block.
struct ActivationSlots {
  int64_t slots = 1;    // PeakLiveBlocks
  int64_t pending = 0;  // PeakPendingMicrobatches
  int64_t blocks = 0;   // of the stage: so many in each pending pass
  int64_t heads = 1;    // gradients that the head has made for backward passes to come
};

// The planner counts these slots and the worker takes them. REQUIRES: CheckLayout holds.
ActivationSlots ActivationSlotsOf(const Layout& layout, int64_t num_blocks, int stage);

// The list for `rank`. Names and shapes are documented in memory.cc beside each entry;
// worker/model/stage asks for the same. REQUIRES: CheckModel and CheckLayout hold.
RankMemory PlanRankMemory(const ModelShape& model, const BatchShape& batch, const Layout& layout,
                          int rank, const Numerics& numerics);

// LocalDims holds a rank's share of the dims that tp cuts; 0 for tensors that it has not.
struct LocalDims {
  int64_t query = 0;  // H_local * E
  int64_t key = 0;    // K_local * E
  int64_t ffn = 0;    // F_local
  int64_t vocab = 0;  // V_local, of the matrix that makes logits
  FusedLinears runs;  // LinearsOfOneRun
};
// Returns the elements from one row of training's logits to the next, for `vocab` of them: whole
// lines of 128 bytes in 16 bits. Rows of GPT-2's 50257 logits, or of a part of a vocabulary that tp
// cuts unevenly, would else begin where tensor cores' copies cannot.
int64_t LogitStride(int64_t vocab);

LocalDims LocalDimsOf(const ModelShape& model, absl::Span<const Bucket> buckets);

// A scope says how many copies of a step's buffer a rank holds, and what the buffer's name starts
// with.
enum class BufferScope {
  kSlot,          // "slot<i>/": what a block keeps
  kPendingBlock,  // "pending<i>/block<j>/": what it makes again, which zb_h1 needs later
  kPending,       // "pending<i>/"
  kHead,          // "head<i>/"
  kBlock,         // "block<i>/": of each of the stage's blocks
  kRecomputed,    // "work/recomputed/": or here; this and those that follow are there once
  kWork,          // "work/"
  kWorkGradient,  // "work/d"
  kWorkOfHead,    // "work/head/"
  kComm,          // "comm/"
  kTokens,        // "tokens/"
};

// Doubles that a step's totals are (worker/train/trainer.h).
inline constexpr int64_t kStepTotals = 4;

struct StepBuffer {
  MemoryKind kind = MemoryKind::kWorkspace;
  BufferScope scope = BufferScope::kWork;
  absl::string_view name;  // without its scope
  int64_t elements = 0;
  ElementType type = ElementType::kFp32;
};

// Returns what follows the model states in PlanRankMemory's list, in its order, for the rank at pp
// and cp of `at`; but one slot, one pending pass with one block, one block and one head stand for
// all of them: sums need no names and no copies (plan/memory/stage_memory). `blocks`: of a model
// that differs in its number of blocks at most.
std::vector<StepBuffer> StepBuffersOf(const ModelShape& model, const BatchShape& batch,
                                      const Layout& layout, const GridCoordinates& at,
                                      const Numerics& numerics, const LocalDims& dims,
                                      BlockMemoryTable& blocks);

}  // namespace weft
