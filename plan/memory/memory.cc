#include "plan/memory/memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/block/block_buffers.h"
#include "plan/errors.h"
#include "plan/memory/attention_scratch.h"
#include "plan/memory/block_memory.h"
#include "plan/memory/cudnn_attention.h"
#include "plan/schedule/schedule.h"
#include "plan/shards/buckets.h"
#include "plan/shards/shard.h"
#include "plan/spec/fp8.h"

namespace weft {
namespace {

// Local sizes of one rank. Letters: glossary; `local` is this tp rank's part.
struct LocalSizes {
  int64_t rows = 0;           // N = B * T / cp, tokens of a microbatch
  int64_t part_rows = 0;      // R, those of its residuals on this rank: N, or N / tp
  int64_t hidden = 0;         // D
  int64_t query = 0;          // H_local * E
  int64_t key = 0;            // K_local * E
  int64_t ffn = 0;            // F_local
  int64_t vocab = 0;          // V_local
  int64_t lse = 0;            // B * H_local * T / cp
  int64_t rotary = 0;         // T / cp * W: cosines and sines of each position; 0 for gpt2
  int64_t rotations = 0;      // tables of these
  int64_t whole_keys = 0;     // B * T * K_local * E: keys of whole sequences; 0 without cp
  int64_t score_scratch = 0;  // Device::Attention's
  int64_t norm_sums = 0;      // N where tp cuts what one norm is of
  Fp8Scratch fp8;             // of precision fp8
  Fp8Weights fp8_weights;     // that are kept
  FusedLinears fused;
  ElementType type = ElementType::kFp32;  // of activations
};

// A block has up to 16 buffers, kept or made again, the rest of the list about as many.
constexpr size_t kMostStepBuffers = 72;

class List {
 public:
  explicit List(ElementType activations) : activations_(activations) {
    buffers_.reserve(kMostStepBuffers);
  }

  // Adds activations or their gradients.
  void Add(MemoryKind kind, BufferScope scope, absl::string_view name, int64_t elements) {
    buffers_.push_back({kind, scope, name, elements, activations_});
  }
  // Adds what is fp32 whatever the activations are: sums, what comes from them, and what becomes no
  // activation.
  void AddStatistic(MemoryKind kind, BufferScope scope, absl::string_view name, int64_t elements) {
    buffers_.push_back({kind, scope, name, elements, ElementType::kFp32});
  }
  void AddCodes(MemoryKind kind, BufferScope scope, absl::string_view name, int64_t elements) {
    buffers_.push_back({kind, scope, name, elements, ElementType::kUint8});
  }
  void AddTotals(absl::string_view name, int64_t elements) {
    buffers_.push_back(
        {MemoryKind::kWorkspace, BufferScope::kWork, name, elements, ElementType::kFp64});
  }
  void AddTokens(absl::string_view name, int64_t elements) {
    buffers_.push_back(
        {MemoryKind::kTokens, BufferScope::kTokens, name, elements, ElementType::kInt32});
  }
  std::vector<StepBuffer> Take() { return std::move(buffers_); }

 private:
  ElementType activations_;
  std::vector<StepBuffer> buffers_;
};

// Rows of the first shard whose name ends in `suffix`; 0 if this rank has none.
int64_t LocalRows(absl::Span<const Bucket> buckets, absl::string_view suffix) {
  for (const Bucket& bucket : buckets) {
    for (const TensorShard& shard : bucket.shards) {
      if (absl::EndsWith(shard.tensor.name, suffix)) return shard.end.front() - shard.begin.front();
    }
  }
  return 0;
}

// About attention.
bool AsksCudnn(const ModelShape& model, const BatchShape& batch, const Layout& layout,
               const Numerics& numerics) {
  return numerics.cudnn_attention && numerics.compute() != ElementType::kFp32 &&
         IsHeadOfCudnn(model.head_dim) && model.attention_cap == 0 &&
         AreRunsOfCudnn(batch.seq_len, layout.cp, batch.masks_documents);
}

LocalSizes SizesOf(const ModelShape& model, const BatchShape& batch, const Layout& layout,
                   const Numerics& numerics, const LocalDims& dims, const FusedLinears& joints,
                   int context_rank) {
  LocalSizes sizes;
  sizes.type = numerics.compute();
  sizes.rows = layout.micro_batch_size * batch.seq_len / layout.cp;
  sizes.part_rows = sizes.rows / layout.sequence_ranks();
  sizes.hidden = model.hidden_size;
  sizes.query = dims.query;
  sizes.key = dims.key;
  sizes.ffn = dims.ffn;
  sizes.vocab = dims.vocab;
  sizes.lse = sizes.query / model.head_dim * sizes.rows;
  if (!model.learned_positions) {
    sizes.rotary = batch.seq_len / layout.cp * model.rotary_dims();
    sizes.rotations = std::ssize(model.rotations());
  }
  if (model.wide_qk_norms && layout.tp > 1) sizes.norm_sums = sizes.rows;
  if (layout.cp > 1) sizes.whole_keys = sizes.rows * layout.cp * sizes.key;
  const bool is_fp8 = numerics.precision == Precision::kFp8;
  const Fp8Layers fp8 = is_fp8 ? Fp8LayersOf(model, batch, layout) : Fp8Layers();
  const std::vector<int64_t> documents = DocumentBoundsOf(model, batch, layout, numerics);
  sizes.fused = FusedLinearsOf(joints, dims.runs, fp8, !documents.empty());
  const Fp8BlockShape block = {.layers = fp8,
                               .tokens = sizes.rows,
                               .hidden = sizes.hidden,
                               .query = sizes.query,
                               .key = sizes.key,
                               .ffn = sizes.ffn,
                               .has_gate = model.is_gated(),
                               .is_qkv_one = sizes.fused.qkv,
                               .is_gate_up_one = sizes.fused.gate_up};
  sizes.fp8 = Fp8ScratchOf(block, KeepsFp8Weights(layout));
  if (KeepsFp8Weights(layout)) sizes.fp8_weights = Fp8WeightsOf(block);
  const int64_t run_len = layout.cp > 1 ? batch.seq_len / (int64_t{2} * layout.cp) : batch.seq_len;
  sizes.score_scratch = AttentionScratchFloats(
      {.key_len = batch.seq_len,
       // The later of a rank's two runs is as far from the end as the other one from the start.
       .seen_len = batch.seq_len - context_rank * run_len,
       .run_len = run_len,
       .query_len = batch.seq_len / layout.cp,
       .head_dim = model.head_dim,
       .kv_heads = layout.micro_batch_size * sizes.key / model.head_dim,
       .widens = sizes.type != ElementType::kFp32},
      numerics.threads);
  if (AsksCudnn(model, batch, layout, numerics)) {
    sizes.score_scratch =
        std::max(sizes.score_scratch,
                 CudnnAttentionScratchFloats({.batch = layout.micro_batch_size,
                                              .seq_len = batch.seq_len,
                                              .heads = sizes.query / model.head_dim,
                                              .kv_heads = sizes.key / model.head_dim,
                                              .head_dim = model.head_dim,
                                              .documents = documents.empty() ? 0 : documents.back(),
                                              .cp = layout.cp}));
  }
  return sizes;
}

int64_t BytesAt(MemoryHome home, absl::Span<const BufferSpec> buffers) {
  int64_t sum = 0;
  for (const BufferSpec& buffer : buffers) {
    if (buffer.home == home) sum += buffer.aligned_bytes();
  }
  return sum;
}

// "weights/<bucket>", "gradients/<bucket>", "master/<bucket>" (16-bit precisions),
// "exp_avg/<bucket>" and so on (StateArrays). Each prefix is one run of neighbours, so that
// gradients can be cleared in one call.
void AddModelStates(absl::Span<const Bucket> buckets, const Layout& layout,
                    const Numerics& numerics, std::vector<BufferSpec>& list) {
  const auto add = [&list](const StateBuffer& buffer, std::string name) {
    list.push_back({buffer.kind, std::move(name), buffer.elements, buffer.type, buffer.home});
  };
  const BucketElements elements = BucketElementsOf(buckets);
  const std::vector<WholePlace> places = WholePlacesOf(buckets);
  std::vector<StateBuffers> states;  // by bucket
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Sharding sharding = ShardingAt(places[i], elements.counts, layout);
    states.push_back(StateBuffersOf(buckets[i].elements, sharding, StatesHome(layout), numerics));
  }
  for (size_t kind = 0; kind < states.front().size(); ++kind) {
    for (size_t i = 0; i < buckets.size(); ++i) {
      const StateBuffer& state = states[i][kind];
      add(state, absl::StrCat(state.prefix, "/", buckets[i].name));
    }
  }
  for (const StateBuffer& whole : WholeBuffersOf(elements, layout, numerics)) {
    add(whole, absl::StrCat("whole/", whole.prefix));
  }
  const StagingRoom staging = StagingOf(elements, layout, numerics);
  for (int place = 0; place < staging.places; ++place) {
    for (const StateBuffer& staged : StagingBuffersOf(staging, numerics)) {
      add(staged, absl::StrCat("work/staging", place, "/", staged.prefix));
    }
  }
  FactoredTotals totals;
  for (const Bucket& bucket : buckets) totals += FactoredTotalsOf(bucket);
  for (const StateBuffer& factored : FactoredBuffersOf(totals, numerics)) {
    add(factored, std::string(factored.prefix));
  }
}

// A block's buffers and what a rank has of them.
struct LocalBlock {
  const BlockMemory& memory;
  const Layout& layout;
  int tp_index = 0;
};

int64_t ElementsOf(const BlockBuffer& buffer, const LocalSizes& sizes, const LocalBlock& block) {
  // The engine runs no experts yet, so that no rows are routed (EngineIssues).
  const int64_t rows = buffer.rows == Rows::kPart ? sizes.part_rows : sizes.rows;
  return rows * LocalColumns(block.memory.ops, buffer.value, block.layout, block.tp_index);
}

void AddBlockBuffers(absl::Span<const BlockBuffer> buffers, MemoryKind kind, BufferScope scope,
                     const LocalSizes& sizes, const LocalBlock& block, List& list) {
  for (const BlockBuffer& buffer : buffers) {
    const int64_t elements = ElementsOf(buffer, sizes, block);
    if (buffer.is_statistic) {
      list.AddStatistic(kind, scope, buffer.name, elements);
    } else {
      list.Add(kind, scope, buffer.name, elements);
    }
  }
}

// Scratch of a block's backward pass, and attention's; shared by all blocks.
void AddBlockWorkspace(const LocalSizes& sizes, const LocalBlock& block, List& list) {
  const auto add = [&](absl::string_view name, int64_t elements) {
    list.Add(MemoryKind::kWorkspace, BufferScope::kWork, name, elements);
  };
  const auto add_statistic = [&](absl::string_view name, int64_t elements) {
    list.AddStatistic(MemoryKind::kWorkspace, BufferScope::kWork, name, elements);
  };
  AddBlockBuffers(block.memory.gradients, MemoryKind::kWorkspace, BufferScope::kWorkGradient, sizes,
                  block, list);
  // [N, D] all tokens of what a product takes from residuals or gives to them
  // (worker/model/token_cut.h)
  if (sizes.part_rows < sizes.rows) add("gathered", sizes.rows * sizes.hidden);
  // [B*T, K*E]: keys and values gathered over cp, and their gradients before they are summed
  for (const absl::string_view name : {"keys", "values", "dkeys", "dvalues"}) {
    if (sizes.whole_keys > 0) add(name, sizes.whole_keys);
  }
  add_statistic("scores", sizes.score_scratch);                          // scratch of attention
  if (sizes.norm_sums > 0) add_statistic("norm_sums", sizes.norm_sums);  // [N, 1]
  // One product's operands at a time are in 8 bits (plan/spec/fp8.h).
  if (sizes.fp8.scales > 0) {
    const auto add_codes = [&](absl::string_view name, int64_t elements) {
      list.AddCodes(MemoryKind::kWorkspace, BufferScope::kWork, name, elements);
    };
    add_codes("fp8_input", sizes.fp8.input);
    add_codes("fp8_gradient", sizes.fp8.gradient);
    add_codes("fp8_gradient_transposed", sizes.fp8.gradient);
    if (sizes.fp8.weight > 0) add_codes("fp8_weight", sizes.fp8.weight);
    add_statistic("fp8_scales", sizes.fp8.scales);
  }
  // [T / cp, W] filled once (worker/model/rotary.h)
  for (int64_t way = 0; way < sizes.rotations; ++way) {
    add_statistic(kRotaryTables[way], sizes.rotary);
  }
}

// Adds the codes of a block's weights that are kept for a step: in the order of its layers.
void AddBlockCodes(const Fp8Weights& weights, List& list) {
  if (weights.count == 0) return;
  const auto add = [&](absl::string_view name) {
    list.AddCodes(MemoryKind::kWeights, BufferScope::kBlock, name, weights.elements);
  };
  add("fp8_weights");
  add("fp8_weights_transposed");
  list.AddStatistic(MemoryKind::kWeights, BufferScope::kBlock, "fp8_scales", weights.count);
}

// The last stage turns logits into their gradient within the forward action (Stage::Forward), so
// they are needed once, not once per live microbatch.
void AddHeadWorkspace(const ModelShape& model, const LocalSizes& sizes, int chunks, List& list) {
  const int64_t n = sizes.rows;
  const int64_t r = sizes.part_rows;
  const auto add = [&](absl::string_view name, int64_t elements) {
    list.Add(MemoryKind::kWorkspace, BufferScope::kWorkOfHead, name, elements);
  };
  const auto add_statistic = [&](absl::string_view name, int64_t elements) {
    list.AddStatistic(MemoryKind::kWorkspace, BufferScope::kWorkOfHead, name, elements);
  };
  add("x", r * sizes.hidden);                                  // [R, D] of the last block
  if (model.has_layer_norms()) add_statistic("norm_mean", r);  // [R, 1]
  add_statistic("norm_rstd", r);                               // [R, 1]
  add("norm_out", r * sizes.hidden);                           // [R, D]
  // [P, V_local] of the largest piece of the N rows, then their gradient; rows LogitStride apart
  add("logits", EvenSplit(n, chunks, 0).size() * LogitStride(sizes.vocab));
  add_statistic("row_max", n);       // [N, 1]
  add_statistic("row_sum", n);       // [N, 1] sum of exponentials
  add_statistic("target_logit", n);  // [N, 1]
}

absl::string_view ScopeFolder(BufferScope scope) {
  switch (scope) {
    case BufferScope::kRecomputed:
      return "work/recomputed/";
    case BufferScope::kWork:
      return "work/";
    case BufferScope::kWorkGradient:
      return "work/d";
    case BufferScope::kWorkOfHead:
      return "work/head/";
    case BufferScope::kComm:
      return "comm/";
    case BufferScope::kTokens:
      return "tokens/";
    case BufferScope::kSlot:
    case BufferScope::kPendingBlock:
    case BufferScope::kPending:
    case BufferScope::kHead:
    case BufferScope::kBlock:
      break;
  }
  CHECK(false);  // these have a number
  return "";
}

// Every copy of every buffer, by name.
void AddStepBuffers(absl::Span<const StepBuffer> step, const ActivationSlots& slots,
                    std::vector<BufferSpec>& list) {
  const auto add_all = [&](BufferScope scope, absl::string_view folder) {
    for (const StepBuffer& buffer : step) {
      if (buffer.scope != scope) continue;
      list.push_back(
          {buffer.kind, absl::StrCat(folder, buffer.name), buffer.elements, buffer.type});
    }
  };
  for (int64_t slot = 0; slot < slots.slots; ++slot) {
    add_all(BufferScope::kSlot, absl::StrCat("slot", slot, "/"));
  }
  for (int64_t pass = 0; pass < slots.pending; ++pass) {
    for (int64_t block = 0; block < slots.blocks; ++block) {
      add_all(BufferScope::kPendingBlock, absl::StrCat("pending", pass, "/block", block, "/"));
    }
    add_all(BufferScope::kPending, absl::StrCat("pending", pass, "/"));
  }
  for (int64_t head = 0; head < slots.heads; ++head) {
    add_all(BufferScope::kHead, absl::StrCat("head", head, "/"));
  }
  for (int64_t block = 0; block < slots.blocks; ++block) {
    add_all(BufferScope::kBlock, absl::StrCat("block", block, "/"));
  }
  for (const StepBuffer& buffer : step) {
    if (buffer.scope < BufferScope::kRecomputed) continue;
    list.push_back({buffer.kind, absl::StrCat(ScopeFolder(buffer.scope), buffer.name),
                    buffer.elements, buffer.type});
  }
}

}  // namespace

Words WordsOf(MemoryKind) {
  static constexpr absl::string_view kWords[] = {"weights",       "gradients",   "master weights",
                                                 "optimizer",     "activations", "workspace",
                                                 "communication", "tokens"};
  return kWords;
}

int64_t RankMemory::bytes(MemoryKind kind) const {
  int64_t sum = 0;
  for (const BufferSpec& buffer : buffers) {
    if (buffer.kind == kind && buffer.home == MemoryHome::kDevice) sum += buffer.aligned_bytes();
  }
  return sum;
}

int64_t RankMemory::total_bytes() const {
  return BytesAt(MemoryHome::kDevice, buffers);
}

int64_t RankMemory::host_bytes() const {
  return BytesAt(MemoryHome::kHost, buffers);
}

std::vector<int64_t> DocumentBoundsOf(const ModelShape& model, const BatchShape& batch,
                                      const Layout& layout, const Numerics& numerics) {
  if (!batch.masks_documents || !AsksCudnn(model, batch, layout, numerics)) return {};
  return DocumentBounds(layout.micro_batch_size, batch.seq_len);
}

MemoryHome StatesHome(const Layout& layout) {
  return layout.offloads_optimizer() ? MemoryHome::kHost : MemoryHome::kDevice;
}

StateBuffers StateBuffersOf(int64_t elements, const Sharding& sharding, MemoryHome home,
                            const Numerics& numerics) {
  const int64_t part = PartElements(elements, sharding.parts, BucketUnit(numerics.optimizer));
  const int64_t whole = part * sharding.parts;
  StateBuffers buffers;
  buffers.Add(
      {MemoryKind::kWeights, "weights", sharding.weights ? part : whole, numerics.compute()});
  buffers.Add({MemoryKind::kGradients, "gradients", sharding.gradients ? part : whole});
  if (numerics.has_master_weights()) {
    buffers.Add({MemoryKind::kMasterWeights, "master", part, ElementType::kFp32, home});
  }
  for (const StateArray& state : StateArrays(numerics.optimizer)) {
    buffers.Add({MemoryKind::kOptimizer, state.name, state.ElementsFor(part),
                 state.is_codes() ? ElementType::kUint8 : ElementType::kFp32, home});
  }
  return buffers;
}

BucketElements BucketElementsOf(absl::Span<const Bucket> buckets) {
  BucketElements elements;
  for (const Bucket& bucket : buckets) {
    if (bucket.shards.front().tensor.part == ModelPart::kBlock) {
      elements.block = std::max(elements.block, bucket.elements);
      ++elements.counts.blocks;
    } else {
      ++elements.counts.ends;
      elements.end = std::max(elements.end, bucket.elements);
    }
  }
  return elements;
}

StateBuffers WholeBuffersOf(const BucketElements& elements, const Layout& layout,
                            const Numerics& numerics) {
  const Sharding sharding = ShardingOf(layout);
  const int64_t unit = BucketUnit(numerics.optimizer);
  StateBuffers buffers;
  using Names = std::array<absl::string_view, kWholePlaces>;
  const auto add = [&](const Names& names, int64_t least_buckets, ElementType type) {
    for (const WholePlace place :
         {WholePlace::kEnds, WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
      if (elements.counts.at(place) < least_buckets) continue;
      const int64_t run = place == WholePlace::kEnds ? elements.end : elements.block;
      const int64_t whole = sharding.parts * PartElements(run, sharding.parts, unit);
      buffers.Add({MemoryKind::kCommunication, names[static_cast<size_t>(place)], whole, type});
    }
  };
  constexpr int64_t kShared = 2;
  if (sharding.weights) {
    add({"weights/ends", "weights/even", "weights/odd"}, kShared, numerics.compute());
  }
  if (sharding.gradients) {
    add({"gradients/ends", "gradients/even", "gradients/odd"}, kShared, ElementType::kFp32);
  }
  if (NarrowsSums(layout, numerics)) {
    add({"reduced/ends", "reduced/even", "reduced/odd"}, 1, ElementType::kBf16);
  }
  return buffers;
}

bool NarrowsSums(const Layout& layout, const Numerics& numerics) {
  return numerics.narrows_sums() && layout.data_group() > 1;
}

StagingRoom StagingOf(const BucketElements& elements, const Layout& layout,
                      const Numerics& numerics) {
  const bool keeps = numerics.has_master_weights() || !StateArrays(numerics.optimizer).empty();
  if (!layout.offloads_optimizer() || !keeps) return {};
  const int parts = ShardingOf(layout).parts;
  const int64_t unit = BucketUnit(numerics.optimizer);
  const int64_t block = PartElements(elements.block, parts, unit);
  const int64_t staged = std::min(block, kMostStagedElements);
  const int64_t full_stretches =
      elements.counts.blocks * (block / staged) + PartElements(elements.end, parts, unit) / staged;
  return {.elements = staged, .places = full_stretches > 1 ? 2 : 1};
}

StateBuffers StagingBuffersOf(const StagingRoom& staging, const Numerics& numerics) {
  StateBuffers buffers;
  if (staging.places == 0) return buffers;
  // A stretch as a bucket that nothing cuts.
  for (const StateBuffer& state :
       StateBuffersOf(staging.elements, Sharding(), MemoryHome::kHost, numerics)) {
    if (state.home == MemoryHome::kDevice) continue;
    buffers.Add({MemoryKind::kWorkspace, state.prefix, state.elements, state.type});
  }
  return buffers;
}

StateBuffers FactoredBuffersOf(const FactoredTotals& totals, const Numerics& numerics) {
  StateBuffers buffers;
  if (numerics.optimizer != OptimizerStates::kFactored) return buffers;
  buffers.Add({MemoryKind::kOptimizer, "exp_avg_sq_factors", totals.elements});
  buffers.Add({MemoryKind::kCommunication, "comm/square_sums", totals.elements});
  buffers.Add({MemoryKind::kCommunication, "comm/norms", 2 * totals.tensors});
  buffers.Add({MemoryKind::kWorkspace, "work/row_means", totals.tensors});
  return buffers;
}

ActivationSlots ActivationSlotsOf(const Layout& layout, int64_t num_blocks, int stage) {
  ActivationSlots slots;
  slots.slots = PeakLiveBlocks(layout, num_blocks, stage);
  slots.pending = PeakPendingMicrobatches(layout, stage);
  slots.blocks = StageBlockCount(layout, num_blocks, stage);
  // All schedules but GPipe run the last virtual stage's backward pass right after its forward.
  slots.heads = layout.pp_schedule == ScheduleKind::kGpipe ? layout.gradient_accumulation_steps : 1;
  return slots;
}

int64_t LogitStride(int64_t vocab) {
  constexpr int64_t kLine = 64;
  return (vocab + kLine - 1) / kLine * kLine;
}

LocalDims LocalDimsOf(const ModelShape& model, absl::Span<const Bucket> buckets) {
  const absl::string_view table = model.tied_embeddings ? "embed.tokens.weight" : "head.weight";
  return {.query = LocalRows(buckets, ".attn.q.weight"),
          .key = LocalRows(buckets, ".attn.k.weight"),
          .ffn = LocalRows(buckets, ".mlp.up.weight"),
          .vocab = LocalRows(buckets, table),
          .runs = LinearsOfOneRun(buckets)};
}

RankMemory PlanRankMemory(const ModelShape& model, const BatchShape& batch, const Layout& layout,
                          int rank, const Numerics& numerics) {
  const GridCoordinates at = layout.grid().CoordinatesOf(rank);
  const std::vector<Bucket> buckets = BucketsOf(model, layout, rank, numerics.optimizer);
  RankMemory memory;
  AddModelStates(buckets, layout, numerics, memory.buffers);
  BlockMemoryTable blocks(model);
  AddStepBuffers(
      StepBuffersOf(model, batch, layout, at, numerics, LocalDimsOf(model, buckets), blocks),
      ActivationSlotsOf(layout, model.num_blocks, at.pp), memory.buffers);
  return memory;
}

std::vector<StepBuffer> StepBuffersOf(const ModelShape& model, const BatchShape& batch,
                                      const Layout& layout, const GridCoordinates& at,
                                      const Numerics& numerics, const LocalDims& dims,
                                      BlockMemoryTable& blocks) {
  const LocalSizes sizes = SizesOf(model, batch, layout, numerics, dims, blocks.joints(), at.cp);
  const int stage = at.pp;
  const bool first = stage == 0;
  const bool last = stage == layout.pp - 1;
  const Recompute recompute = layout.recompute_of(stage);
  const int64_t boundary = sizes.part_rows * sizes.hidden;  // [R, D] what crosses a stage's border

  List list(sizes.type);
  const bool splits = SplitsBackward(layout);
  const LocalBlock block = {blocks.Of(sizes.fused), layout, at.tp};
  const SavedBuffers& saved = block.memory.SavedUnder(recompute);
  AddBlockBuffers(saved.kept, MemoryKind::kActivations, BufferScope::kSlot, sizes, block, list);
  // Gradient of the last block's output [R, D], which its weight gradients need. Other gradients
  // that weight gradients need take the place of activations that nobody needs then.
  if (splits) {
    AddBlockBuffers(saved.made_again, MemoryKind::kActivations, BufferScope::kPendingBlock, sizes,
                    block, list);
    list.Add(MemoryKind::kActivations, BufferScope::kPending, "dy", boundary);
  }
  // Gradient of the last block's output [R, D], made by the head's half of the forward action.
  if (last) list.Add(MemoryKind::kActivations, BufferScope::kHead, "dx", boundary);
  if (!splits) {
    AddBlockBuffers(saved.made_again, MemoryKind::kWorkspace, BufferScope::kRecomputed, sizes,
                    block, list);
  }
  AddBlockCodes(sizes.fp8_weights, list);
  AddBlockWorkspace(sizes, block, list);
  if (last) AddHeadWorkspace(model, sizes, layout.head_chunks(batch.seq_len), list);
  if (!last || layout.virtual_stages > 1) {
    // [R, D]: gradient on its way through a chunk's blocks; what comes from and goes to the next.
    list.Add(MemoryKind::kWorkspace, BufferScope::kWork, "dx", boundary);
    list.Add(MemoryKind::kCommunication, BufferScope::kComm, "recv_gradient", boundary);
    list.Add(MemoryKind::kCommunication, BufferScope::kComm, "send_activation", boundary);
  }
  list.AddTotals("totals", kStepTotals);
  // [M*N, 1]
  const int64_t step_tokens = layout.gradient_accumulation_steps * sizes.rows;
  if (first) list.AddTokens("ids", step_tokens);
  if (last) list.AddTokens("targets", step_tokens);
  // Rows of the table of learned positions.
  if (first && model.learned_positions) list.AddTokens("positions", step_tokens);
  // The position where each token's document starts.
  if (batch.masks_documents) list.AddTokens("first_visible", step_tokens);
  // The first position of each token's window.
  if (model.slides_over(batch.seq_len)) list.AddTokens("first_in_window", step_tokens);
  return list.Take();
}

}  // namespace weft
