#include "plan/estimate/memory_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "plan/errors.h"
#include "plan/estimate/activation_bytes.h"
#include "plan/estimate/block_share.h"
#include "plan/estimate/state_bytes.h"
#include "plan/memory/attention_scratch.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/fp8.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

// More than any machine has; sums of all terms stay within int64_t.
constexpr double kMostBytes = static_cast<double>(int64_t{1} << 58);

int64_t Bytes(double bytes) {
  return static_cast<int64_t>(std::ceil(std::clamp(bytes, 0.0, kMostBytes)));
}

// Counts the bytes that a stage holds at the fullest moment of a step.
struct Moment {
  double gradients = 0;  // beyond those that are always there
  double activations = 0;
  double head = 0;
  double transients = 0;

  double total() const { return gradients + activations + head + transients; }
  void RaiseTo(const Moment& other) {
    if (other.total() > total()) *this = other;
  }
};

// Activations of one stage that do not depend on the moment.
struct StageActivations {
  BlockFootprint block;
  InFlight held;
  double embedding = 0;  // first stage, all microbatches in flight
  double head = 0;       // last stage, final norm of those
  double total() const {
    return held.block_passes * block.saved + held.pending * block.pending + embedding + head;
  }
};

// One block's bytes; where a stage has blocks of both kinds, what they keep in the mean, and what
// backward needs for one with experts.
BlockFootprint MeanBlockBytes(const Question& question, const Layout& layout, int stage,
                              const BlockFacts& facts) {
  const ModelShape& model = question.model;
  const auto recompute = static_cast<size_t>(layout.recompute_of(stage));
  const int64_t dense = StageBlocksBefore(layout, model.num_blocks, stage, model.num_dense_blocks);
  BlockFootprint block = facts.saved[recompute];
  if (dense == 0) return block;
  const BlockFootprint& of_dense = facts.dense_saved[recompute];
  const int64_t all = StageBlockCount(layout, model.num_blocks, stage);
  if (dense == all) return of_dense;
  const double share = static_cast<double>(dense) / static_cast<double>(all);
  block.saved += share * (of_dense.saved - block.saved);
  block.pending += share * (of_dense.pending - block.pending);
  return block;
}

StageActivations StageActivationsOf(const Question& question, const Layout& layout, int stage,
                                    const BlockFacts& facts) {
  StageActivations activations;
  activations.block = MeanBlockBytes(question, layout, stage, facts);
  activations.held = InFlightOf(question, layout, stage);
  const double microbatches = std::max(1.0, activations.held.microbatches);
  if (stage == 0) {
    activations.embedding = microbatches * EmbeddingActivationBytes(question, layout);
  }
  if (stage == layout.pp - 1) {
    const bool all_at_once = layout.pp_schedule == ScheduleKind::kGpipe;
    activations.head =
        (all_at_once ? microbatches : 1) * HeadActivationBytes(question, layout).saved;
  }
  return activations;
}

// 16-bit gradient of the whole token table, which backward makes before it is added up.
double TableGradient(const Question& question, const Layout& layout) {
  if (question.adapters) return 0;
  return ActivationBytes(question.numerics.precision) * LocalVocabulary(question, layout) *
         static_cast<double>(question.model.hidden_size);
}

Moment FullestMoment(const Question& question, const Layout& layout, int stage,
                     const StateBytes& states, const BlockFacts& facts) {
  const StageActivations activations = StageActivationsOf(question, layout, stage, facts);
  const double held = activations.total();
  const bool sequence_parallel = layout.sequence_parallel;
  const double gathered =
      sequence_parallel ? BoundaryBytes(question, layout) * layout.tp : 0;  // the head's input
  Moment fullest = {.gradients = states.gradient_copies};
  fullest.RaiseTo({.activations = held + activations.block.recomputed,
                   .transients = activations.block.backward});
  if (stage == layout.pp - 1) {
    const double logits = HeadActivationBytes(question, layout).logits;
    const bool all_at_once = layout.pp_schedule == ScheduleKind::kGpipe;
    const double count = all_at_once ? std::max(1.0, activations.held.microbatches) : 1;
    fullest.RaiseTo({.activations = held, .head = count * logits, .transients = gathered});
    // The output matrix's gradient, while the logits' is still there.
    if (question.engine.memory.fused_loss || !question.engine.memory.accumulates_in_place) {
      const double kept = question.engine.memory.fused_loss ? 1 : 1.0 / 3;
      fullest.RaiseTo({.activations = held,
                       .head = count * logits * kept,
                       .transients = gathered + TableGradient(question, layout)});
    }
  }
  if (stage == 0) {
    // When the table's gradient is made, the microbatch's blocks are done with.
    const double done = activations.held.chunk_blocks * activations.block.saved;
    fullest.RaiseTo(
        {.activations = std::max(0.0, held - done), .transients = TableGradient(question, layout)});
  }
  return fullest;
}

// The parameters of a stage: of a block in the mean, and all.
struct StageFacts {
  const BlockFacts& blocks;
  StageParameters block, own;
};

// Counts what an arena's places for buckets hold (WholeBuffersOf of plan/memory/memory.h):
// embedding or head, and blocks in turns of two. `is_used` says of how many buckets a place is
// there.
template <typename IsUsed>
StageParameters PlacesFor(const Question& question, const Layout& layout, int stage,
                          const StageFacts& facts, const IsUsed& is_used) {
  const BucketCounts counts = BucketCountsOf(question, layout, stage);
  const double turns = (is_used(counts.at(WholePlace::kEvenBlocks)) ? 1 : 0) +
                       (is_used(counts.at(WholePlace::kOddBlocks)) ? 1 : 0);
  const StageParameters& block = facts.block;
  StageParameters whole;
  whole.linear = turns * block.linear;
  whole.experts = turns * block.experts;
  whole.vectors = turns * block.vectors;
  whole.adapters = turns * block.adapters;
  whole.expert_adapters = turns * block.expert_adapters;
  if (!is_used(counts.at(WholePlace::kEnds))) return whole;
  const StageParameters& rank = facts.own;
  const double other_end = counts.ends > 1 ? LocalVocabulary(question, layout) *
                                                 static_cast<double>(question.model.hidden_size)
                                           : 0;
  whole.tables = rank.tables - other_end;
  whole.vectors += rank.vectors - static_cast<double>(counts.blocks) * block.vectors;
  return whole;
}

void LeaveExpertsOut(StageParameters& places) {
  places.experts = 0;
  places.adapters -= std::exchange(places.expert_adapters, 0);
}

// Experts that nobody shares are whole anyway. Every bucket of a frozen base is taken to be cut,
// also one that has its place to itself.
StageParameters WholePlaces(const Question& question, const Layout& layout, int stage,
                            const StageFacts& facts) {
  const int64_t least = question.adapters ? 1 : 2;
  StageParameters whole = PlacesFor(question, layout, stage, facts,
                                    [least](int64_t buckets) { return buckets >= least; });
  if (layout.expert_ranks(layout.zero_ranks()) == 1) LeaveExpertsOut(whole);
  return whole;
}

// Counts the gradients that are rounded to be summed: those of experts that nobody shares are not.
StageParameters ReducedPlaces(const Question& question, const Layout& layout, int stage,
                              const StageFacts& facts) {
  StageParameters reduced =
      PlacesFor(question, layout, stage, facts, [](int64_t buckets) { return buckets > 0; });
  if (layout.expert_ranks(layout.data_group()) == 1) LeaveExpertsOut(reduced);
  return reduced;
}

// ZeRO-3: weights of the blocks gathered at once, or of a table if that is larger. A frozen base is
// gathered as it is stored: each linear layer is made wide where it is used (BlockActivationBytes).
double GatheredBytes(const Question& question, const Layout& layout, const BlockFacts& facts,
                     const StageParameters& whole) {
  if (layout.zero_stage < 3) return 0;
  if (question.engine.memory.arena && layout.zero_ranks() == 1) return 0;
  if (question.engine.memory.arena) {
    return WeightBytes(question, whole);
  }
  const double block = WeightBytes(question, facts.parameters.block);
  const double table =
      LocalVocabulary(question, layout) * static_cast<double>(question.model.hidden_size);
  return std::max(question.engine.memory.gathered_layers * block, WeightBytes(question) * table);
}

double BoundaryTensorBytes(const Question& question, const Layout& layout, double tensors) {
  return layout.pp == 1 ? 0 : tensors * BoundaryBytes(question, layout);
}

double CommunicationBytes(const Question& question, const Layout& layout, int stage,
                          const StageFacts& facts, const StageParameters& whole) {
  const MemoryHabits& habits = question.engine.memory;
  const ModelShape& model = question.model;
  const double element = ActivationBytes(question.numerics.precision);
  // An arena has them for its exchange with the next stage alone.
  const bool exchanges = !habits.arena || stage < layout.pp - 1;
  double bytes = exchanges ? BoundaryTensorBytes(question, layout, habits.boundary_tensors) : 0;
  // ZeRO-2 and 3 reduce a block's gradients at a time, from a buffer of their own.
  if (layout.zero_stage >= 2 && habits.arena) {
    if (layout.zero_ranks() > 1) {
      bytes += GradientBytes(question) * (question.adapters ? whole.adapters : whole.all());
    }
  } else if (layout.zero_stage >= 2) {
    const StageParameters& block = facts.blocks.parameters.block;
    bytes += WeightBytes(question) * (question.adapters ? block.adapters : block.all());
  }
  if (habits.arena && NarrowsSums(layout, question.numerics)) {
    const StageParameters reduced = ReducedPlaces(question, layout, stage, facts);
    bytes += 2 * (question.adapters ? reduced.adapters : reduced.all());
  }
  if (layout.cp > 1 && !habits.arena) {
    // A ring's two buffers for keys and values to come (arXiv:2310.01889, 3).
    const double key = std::max(static_cast<double>(model.num_kv_heads) / layout.tp, 1.0) *
                       static_cast<double>(model.head_dim + model.value_dim());
    bytes += 2 * element * LocalTokens(question, layout) * key;
  }
  // The dispatcher sends and gets at once, before ranks that share an expert gather what it got.
  if (layout.ep > 1) {
    bytes += 2 * element * model.expert_imbalance * LocalTokens(question, layout) *
             static_cast<double>(model.experts_per_token * model.hidden_size) / layout.tp;
  }
  return bytes;
}

// On one thread: an engine that is given more may use more.
double AttentionScratchBytes(const Question& question, const Layout& layout) {
  const int64_t length = question.batch.seq_len;
  return 4 * static_cast<double>(AttentionScratchFloats(
                 {.key_len = length,
                  .seen_len = length,
                  .run_len = layout.cp > 1 ? length / (int64_t{2} * layout.cp) : length,
                  .query_len = length / layout.cp,
                  .head_dim = question.model.head_dim,
                  .widens = question.numerics.precision != Precision::kFp32},
                 /*threads=*/1));
}

Fp8BlockShape Fp8ShapeOf(const Question& question, const Layout& layout) {
  const ModelShape& model = question.model;
  const bool is_qkv_one =
      DocumentBoundsOf(model, question.batch, layout, question.numerics).empty();
  const int64_t key_heads = std::max<int64_t>(model.num_kv_heads / layout.tp, 1);
  return {.layers = Fp8LayersOf(model, question.batch, layout),
          .tokens = static_cast<int64_t>(LocalTokens(question, layout)),
          .hidden = model.hidden_size,
          .query = model.num_heads * model.head_dim / layout.tp,
          .key = key_heads * model.head_dim,
          .ffn = model.ffn_size / layout.tp,
          .has_gate = model.is_gated(),
          .is_qkv_one = is_qkv_one,
          .is_gate_up_one = model.is_gated()};
}

// An arena keeps a step's codes of weights (plan/spec/fp8.h).
double KeptCodesBytes(const Question& question, const Layout& layout, int stage) {
  const bool is_fp8 = question.numerics.precision == Precision::kFp8;
  if (!is_fp8 || !KeepsFp8Weights(layout)) return 0;
  const Fp8Weights block = Fp8WeightsOf(Fp8ShapeOf(question, layout));
  const int64_t blocks = StageBlockCount(layout, question.model.num_blocks, stage);
  return static_cast<double>(blocks * (2 * block.elements + 4 * block.count));
}

// Scratch of an engine that frees nothing: gradients inside a block and the head's own tensors
// (plan/memory/memory.cc lists the like), and token ids of the step.
double ArenaWorkspace(const Question& question, const Layout& layout, int stage) {
  const ModelShape& model = question.model;
  const double element = ActivationBytes(question.numerics.precision);
  const double tokens = LocalTokens(question, layout);
  const auto tp = static_cast<double>(layout.tp);
  const double query = static_cast<double>(model.num_heads * model.head_dim) / tp;
  const double key = std::max(static_cast<double>(model.num_kv_heads) / tp, 1.0) *
                     static_cast<double>(model.head_dim);
  const auto hidden = static_cast<double>(model.hidden_size);
  const double values = std::max(static_cast<double>(model.num_kv_heads) / tp, 1.0) *
                        static_cast<double>(model.value_dim());
  const double output = static_cast<double>(model.num_heads * model.value_dim()) / tp;
  const double gated = model.is_gated() ? 2 : 1;
  const double ffn = model.num_experts > 0
                         ? static_cast<double>(model.experts_per_token * model.expert_ffn_size +
                                               model.shared_ffn_size)
                         : static_cast<double>(model.ffn_size);
  const double whole = layout.sequence_ranks() > 1 ? 2 : 1;  // all tokens of a residual
  double bytes =
      element * tokens * (whole * hidden + gated * ffn / tp + query + output + key + values);
  if (model.post_norms) bytes += 2 * element * tokens / layout.sequence_ranks() * hidden;
  if (model.wide_qk_norms && layout.tp > 1) bytes += 4 * tokens;  // sums of rows over tp
  // Keys and values of whole sequences, and their gradients.
  if (layout.cp > 1) bytes += 2 * element * tokens * layout.cp * (key + values);
  bytes += AttentionScratchBytes(question, layout);
  if (question.numerics.precision == Precision::kFp8) {
    const Fp8Scratch scratch = Fp8ScratchOf(Fp8ShapeOf(question, layout), KeepsFp8Weights(layout));
    bytes += static_cast<double>(scratch.input + 2 * scratch.gradient + scratch.weight);
  }
  const bool last = stage == layout.pp - 1;
  if (!last) bytes += BoundaryBytes(question, layout);
  const double step_tokens = tokens * static_cast<double>(layout.gradient_accumulation_steps);
  if (stage == 0) bytes += 4 * step_tokens;
  if (stage == 0 && model.learned_positions) bytes += 4 * step_tokens;  // positions
  if (question.batch.masks_documents) bytes += 4 * step_tokens;
  if (question.model.slides_over(question.batch.seq_len)) bytes += 4 * step_tokens;
  if (last) bytes += 4 * step_tokens;
  return bytes;
}

// The places where an arena's offloaded states are updated (StagingOf of plan/memory/memory.h).
double StagingBytes(const Question& question, const Layout& layout, int stage,
                    const BlockFacts& facts) {
  if (!layout.offloads_optimizer() || question.engine.memory.host_updates) return 0;
  const StageParameters& block = facts.parameters.block;
  const double ranks = layout.zero_stage == 0 ? 1 : layout.zero_ranks();
  const double part = (question.adapters ? block.adapters : block.all()) / ranks;
  const double staged = std::min(part, static_cast<double>(kMostStagedElements));
  const bool only_one = staged == part && layout.pp > 2 && stage > 0 && stage < layout.pp - 1 &&
                        StageBlockCount(layout, question.model.num_blocks, stage) == 1;
  return (only_one ? 1 : 2) * staged * OffloadedBytes(question);
}

double WorkspaceBytes(const Question& question, const Layout& layout, int stage,
                      const BlockFacts& facts) {
  const MemoryHabits& habits = question.engine.memory;
  double bytes = habits.workspace_bytes;
  if (question.model.num_experts > 0) bytes += habits.grouped_workspace_bytes;
  const auto positions = static_cast<double>(question.batch.seq_len);
  const auto sequences = static_cast<double>(layout.micro_batch_size);
  if (habits.loader_mask) bytes += sequences * positions * positions;
  if (habits.keeps_score_buffer && !habits.fused_attention) {
    bytes += ActivationBytes(question.numerics.precision) * LocalTokens(question, layout) *
             positions * static_cast<double>(question.model.num_heads) / layout.tp;
  }
  if (habits.arena) {
    bytes += ArenaWorkspace(question, layout, stage) + StagingBytes(question, layout, stage, facts);
  }
  return bytes;
}

// Weight gradients held for automatic differentiation to hand on, one for each shape: linear layers
// of all blocks share them, and so do experts (transformer_engine/pytorch/module/base.py,
// get_dummy_wgrad).
double PlaceholderBytes(const Question& question, const Layout& layout, int stage) {
  if (!question.engine.memory.keeps_placeholder_gradients) return 0;
  const ModelShape& model = question.model;
  std::array<std::pair<double, double>, 16> shapes;  // [out, in]
  size_t count = 0;
  const auto add = [&](double out, double in) {
    const std::pair<double, double> shape(out, in);
    const auto end = shapes.begin() + static_cast<std::ptrdiff_t>(count);
    if (out > 0 && in > 0 && std::find(shapes.begin(), end, shape) == end) shapes[count++] = shape;
  };
  const auto add_block = [&](const BlockShare& share) {
    if (share.kv_rank > 0) {
      add(share.query_rank, share.width);
      add(share.query, share.query_rank > 0 ? share.query_rank : share.width);
      add(share.kv_down, share.width);
      add(share.kv_up, share.kv_rank);
    } else {
      add(share.query + 2 * share.key_value, share.width);
    }
    add(share.width, share.value);
    add(share.up, share.width);
    add(share.width, share.inner);
    add(share.expert_up, share.width);
    add(share.width, share.expert_inner);
  };
  const int64_t dense = StageBlocksBefore(layout, model.num_blocks, stage, model.num_dense_blocks);
  if (dense < StageBlockCount(layout, model.num_blocks, stage)) add_block(ShareOf(model, layout));
  if (dense > 0) add_block(ShareOf(OfDenseBlocks(model), layout));
  double elements = 0;
  for (size_t i = 0; i < count; ++i) elements += shapes[i].first * shapes[i].second;
  return ActivationBytes(question.numerics.precision) * elements;
}

void SetStates(const StateBytes& states, MemoryEstimate& estimate) {
  estimate[MemoryTerm::kWeights] = Bytes(states.weights);
  estimate[MemoryTerm::kGradients] = Bytes(states.gradients);
  estimate[MemoryTerm::kMasterWeights] = Bytes(states.master_weights);
  estimate[MemoryTerm::kOptimizer] = Bytes(states.optimizer);
  estimate.host_bytes = Bytes(states.host);
}

void SetArenaActivations(const Question& question, const Layout& layout, int stage,
                         const BlockFacts& facts, MemoryEstimate& estimate) {
  const StageActivations activations = StageActivationsOf(question, layout, stage, facts);
  const BlockFootprint& block = activations.block;
  const double boundary = BoundaryBytes(question, layout);
  double held = (activations.held.block_passes + activations.held.pending) * block.saved;
  double transients = block.recomputed;
  if (SplitsBackward(layout)) {
    // Passes between the halves of their backward pass, the one at hand included: what they made
    // again, and the gradient of their output (plan/memory/memory.h).
    const ActivationSlots slots = ActivationSlotsOf(layout, question.model.num_blocks, stage);
    const auto passes = static_cast<double>(slots.pending);
    held += passes * (static_cast<double>(slots.blocks) * block.recomputed + boundary);
    transients = 0;
  }
  if (stage == layout.pp - 1) {
    // The gradient of each microbatch's last output, made by the head within the forward pass.
    held += activations.held.microbatches * boundary;
    const HeadActivations head = HeadActivationBytes(question, layout);
    const double statistics =
        4 * LocalTokens(question, layout) * (3 + question.model.norm_statistics());
    estimate[MemoryTerm::kHead] = Bytes(head.logits + head.saved + statistics);
  }
  estimate[MemoryTerm::kActivations] = Bytes(held);
  estimate[MemoryTerm::kTransients] = Bytes(transients);
}

// Whether it is the worker's own list for all layouts that weft's engine can run.
bool HasListedMemory(const Question& question) {
  return !question.adapters && question.engine.name == "weft" && EngineRuns(question.model);
}

double ContextBytes(const Question& question) {
  return static_cast<double>(question.cluster.device.library_bytes) +
         question.engine.memory.context_bytes;
}

}  // namespace

bool HasListedMemory(const Question& question, const Layout& layout) {
  return HasListedMemory(question) && EngineRuns(layout);
}

Words WordsOf(MemoryTerm) {
  static constexpr absl::string_view kWords[] = {
      "weights",    "gradients",       "master_weights", "optimizer", "activations", "head",
      "transients", "gathered_layers", "communication",  "workspace", "context",     "guard"};
  return kWords;
}

int64_t MemoryEstimate::total_bytes() const {
  int64_t sum = 0;
  for (const int64_t term : bytes) sum += term;
  return sum;
}

int64_t MemoryEstimate::at_rest_bytes() const {
  return of(MemoryTerm::kWeights) + of(MemoryTerm::kGradients) + of(MemoryTerm::kMasterWeights) +
         of(MemoryTerm::kOptimizer);
}

MemoryTerm MemoryEstimate::largest() const {
  return static_cast<MemoryTerm>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

MemoryEstimate ClosedFormStageMemory(const Question& question, const Layout& layout, int stage) {
  return ClosedFormStageMemory(question, layout, stage, BlockFacts(question, layout));
}

MemoryEstimate ClosedFormStageMemory(const Question& question, const Layout& layout, int stage,
                                     const BlockFacts& facts) {
  const MemoryHabits& habits = question.engine.memory;
  const StageFacts own = {.blocks = facts,
                          .block = MeanBlockParameters(question, layout, stage, facts.parameters),
                          .own = ParametersOf(question, layout, stage, facts.parameters)};
  const StateBytes states = StatesOf(question, layout, own.own);
  MemoryEstimate estimate;
  SetStates(states, estimate);
  if (habits.arena) {
    estimate[MemoryTerm::kWeights] += Bytes(KeptCodesBytes(question, layout, stage));
    SetArenaActivations(question, layout, stage, facts, estimate);
  } else {
    const Moment fullest = FullestMoment(question, layout, stage, states, facts);
    estimate[MemoryTerm::kGradients] = Bytes(states.gradients + fullest.gradients);
    estimate[MemoryTerm::kActivations] = Bytes(fullest.activations);
    estimate[MemoryTerm::kHead] = Bytes(fullest.head);
    estimate[MemoryTerm::kTransients] =
        Bytes(fullest.transients + PlaceholderBytes(question, layout, stage));
  }
  StageParameters whole;  // of an arena
  if (habits.arena && layout.zero_stage >= 2 && layout.zero_ranks() > 1) {
    whole = WholePlaces(question, layout, stage, own);
  }
  estimate[MemoryTerm::kGatheredLayers] = Bytes(GatheredBytes(question, layout, facts, whole));
  estimate[MemoryTerm::kCommunication] =
      Bytes(CommunicationBytes(question, layout, stage, own, whole));
  estimate[MemoryTerm::kWorkspace] = Bytes(WorkspaceBytes(question, layout, stage, facts));
  estimate[MemoryTerm::kWorkspace] +=
      Bytes((habits.allocator_slack - 1) * static_cast<double>(estimate.total_bytes()));
  estimate[MemoryTerm::kContext] = Bytes(ContextBytes(question));
  return estimate;
}

MemoryEstimate EstimateStageMemory(const Question& question, const Layout& layout, int stage,
                                   MemoryTable& table) {
  if (!table.lists || !EngineRuns(layout)) {
    return ClosedFormStageMemory(question, layout, stage, table.blocks.Of(question, layout));
  }
  const MemoryBytes listed = table.listed.Of(layout, stage);
  MemoryEstimate estimate;
  estimate[MemoryTerm::kWeights] = listed.bytes(MemoryKind::kWeights);
  estimate[MemoryTerm::kGradients] = listed.bytes(MemoryKind::kGradients);
  estimate[MemoryTerm::kMasterWeights] = listed.bytes(MemoryKind::kMasterWeights);
  estimate[MemoryTerm::kOptimizer] = listed.bytes(MemoryKind::kOptimizer);
  estimate[MemoryTerm::kActivations] = listed.bytes(MemoryKind::kActivations);
  estimate[MemoryTerm::kCommunication] = listed.bytes(MemoryKind::kCommunication);
  estimate[MemoryTerm::kWorkspace] =
      listed.bytes(MemoryKind::kWorkspace) + listed.bytes(MemoryKind::kTokens);
  estimate[MemoryTerm::kContext] = Bytes(ContextBytes(question));
  estimate.host_bytes = listed.host_bytes;
  estimate.exact = true;
  return estimate;
}

MemoryTable::MemoryTable(const Question& question)
    : lists(HasListedMemory(question)), listed(question.model, question.batch, question.numerics) {}

MemoryEstimate EstimateStageMemory(const Question& question, const Layout& layout, int stage) {
  MemoryTable table(question);
  return EstimateStageMemory(question, layout, stage, table);
}

int64_t BytesBetweenSteps(const Question& question, const Layout& layout, int stage) {
  const MemoryHabits& habits = question.engine.memory;
  if (habits.arena) return EstimateStageMemory(question, layout, stage).total_bytes();
  const StateBytes states = StatesOf(question, layout, ParametersOf(question, layout, stage));
  const double tensors = layout.virtual_stages > 1
                             ? habits.resting_chunk_tensors * layout.virtual_stages
                             : habits.boundary_tensors;
  double workspace = habits.workspace_bytes +
                     (question.model.num_experts > 0 ? habits.grouped_workspace_bytes : 0);
  if (habits.keeps_score_buffer && !habits.fused_attention) {
    MemoryHabits without_mask = habits;
    without_mask.loader_mask = false;
    Question same = question;
    same.engine.memory = without_mask;
    workspace = WorkspaceBytes(same, layout, stage, BlockFacts(same, layout));
  }
  return Bytes(states.resting() + BoundaryTensorBytes(question, layout, tensors) + workspace +
               PlaceholderBytes(question, layout, stage) + ContextBytes(question));
}

int64_t GuardBytes(const Question& question, const MemoryEstimate& estimate) {
  if (estimate.exact) return 0;
  constexpr double kLeast = 1024.0 * 1024.0 * 1024.0;
  const auto total = static_cast<double>(estimate.total_bytes());
  const MemoryHabits& habits = question.engine.memory;
  const auto device = static_cast<double>(question.cluster.device.memory_bytes);
  return Bytes(std::max({kLeast, habits.guard_share * total, habits.spare_share * device}));
}

int64_t LeastStateBytes(const Question& question, const Layout& layout, int stage) {
  // Padding and alignment only add to this: the table as it is, each parameter once.
  const StateBytes states = StatesOf(question, layout, ParametersOf(question, layout, stage));
  return Bytes(states.weights + states.gradients + states.master_weights + states.optimizer);
}

}  // namespace weft
