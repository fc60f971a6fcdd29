#include "plan/estimate/state_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/errors.h"
#include "plan/spec/optimizer.h"

namespace weft {
namespace {

// Widths of one block's layers on one rank; letters are the glossary's.
struct Widths {
  double hidden = 0;  // D
  double query = 0;   // H * E of this rank
  double key = 0;     // K * E of this rank: with fewer kv heads than tp, each is held by several
  double value = 0;   // what goes into the last layer of attention: H times a value's size
  double ffn = 0;     // F of this rank, of all that every token passes
  double expert = 0;  // F of one expert, of this rank
  double gated = 1;   // matrices into the feed-forward
  double local_experts = 0;
  // Latent attention has these whole on each rank, but for `up`, which keys and values are made
  // into.
  double query_rank = 0, kv_rank = 0, rope = 0, up = 0;
};

Widths WidthsOf(const ModelShape& model, double tp, double expert_tp, int ep) {
  const auto heads = static_cast<double>(model.num_heads) / tp;
  const auto head_dim = static_cast<double>(model.head_dim);
  Widths widths;
  widths.hidden = static_cast<double>(model.hidden_size);
  widths.query = static_cast<double>(model.num_heads) * head_dim / tp;
  widths.key = std::max(static_cast<double>(model.num_kv_heads) / tp, 1.0) * head_dim;
  widths.value = heads * static_cast<double>(model.value_dim());
  widths.gated = model.is_gated() ? 2 : 1;
  if (model.num_experts > 0) {
    widths.ffn = static_cast<double>(model.shared_ffn_size) / tp;
    widths.expert = static_cast<double>(model.expert_ffn_size) / expert_tp;
    widths.local_experts = std::ceil(static_cast<double>(model.num_experts) / ep);
  } else {
    widths.ffn = static_cast<double>(model.ffn_size) / tp;
  }
  if (model.is_latent()) {
    const LatentAttention& latent = model.latent;
    widths.query_rank = static_cast<double>(latent.query_rank);
    widths.kv_rank = static_cast<double>(latent.kv_rank);
    widths.rope = static_cast<double>(latent.rope_dim);
    widths.up = heads * static_cast<double>(latent.nope_dim + latent.value_dim);
  }
  return widths;
}

// Weights of attention's linear layers.
double AttentionWeights(const Widths& widths) {
  const double hidden = widths.hidden;
  if (widths.kv_rank == 0) return 2 * hidden * (widths.query + widths.key);
  const double query =
      widths.query_rank > 0 ? widths.query_rank * (hidden + widths.query) : hidden * widths.query;
  return query + hidden * (widths.kv_rank + widths.rope) + widths.kv_rank * widths.up +
         widths.value * hidden;
}

// Counts the adapters of one feed-forward: A [r, in] and B [out, r] beside each of its matrices.
double AdaptersOfFfn(const LoraTargets& targets, const Widths& widths, double ffn) {
  if (ffn == 0) return 0;
  const bool has_gate = widths.gated > 1;
  const double matrices =
      (targets.gate && has_gate ? 1 : 0) + (targets.up ? 1 : 0) + (targets.down ? 1 : 0);
  return matrices * (widths.hidden + ffn);
}

// The same of attention. The side of a matrix that tensor parallelism cuts is already this rank's,
// the other side is whole.
double AdaptersOfAttention(const LoraTargets& targets, const Widths& widths) {
  const double hidden = widths.hidden;
  double count = 0;
  if (targets.q) count += widths.query + hidden;
  if (targets.k) count += widths.key + hidden;
  if (targets.v) count += widths.key + hidden;
  if (targets.qkv) count += widths.query + 2 * widths.key + hidden;
  if (targets.o) count += hidden + widths.query;
  return count;
}

void SetAdapters(const LowRankAdapters& adapters, const Widths& widths, StageParameters& block) {
  const auto rank = static_cast<double>(adapters.rank);
  const LoraTargets& targets = adapters.targets;
  block.expert_adapters =
      rank * widths.local_experts * AdaptersOfFfn(targets, widths, widths.expert);
  block.adapters =
      rank * (AdaptersOfAttention(targets, widths) + AdaptersOfFfn(targets, widths, widths.ffn)) +
      block.expert_adapters;
}

// Counts rows and columns of a block's matrices, whole ones: `widths` are those of tp 1.
double RowsAndColumns(const Widths& widths) {
  const double hidden = widths.hidden;
  double attention = 2 * (hidden + widths.query) + 2 * (hidden + widths.key);  // q and o; k and v
  if (widths.kv_rank > 0) {
    const double rank = widths.query_rank;
    attention = hidden + widths.query + (rank > 0 ? 2 * rank : 0) + hidden + widths.kv_rank +
                widths.rope + widths.kv_rank + widths.up + hidden + widths.value;
  }
  const double matrices = widths.gated + 1;
  const double ffn = widths.ffn > 0 ? matrices * (hidden + widths.ffn) : 0;
  return attention + ffn + widths.local_experts * matrices * (hidden + widths.expert);
}

double VectorsOfBlock(const ModelShape& model, const Widths& widths) {
  double count = model.norm_vectors() * model.norms_of_block() * widths.hidden;
  if (model.wide_qk_norms) {
    count += widths.query + widths.key;
  } else if (model.qk_norms) {
    count += 2 * static_cast<double>(model.head_dim);
  }
  count += widths.query_rank + widths.kv_rank;  // their norms
  if (model.shared_expert_gate) count += widths.hidden;
  if (model.attention_bias) count += widths.query + 2 * widths.key;
  if (model.has_output_bias()) count += widths.hidden;
  if (model.ffn_bias) count += widths.ffn + widths.hidden;
  return count + static_cast<double>(model.num_experts) * widths.hidden;  // the router
}

// Returns the bytes of the optimizer's states of so many parameters. Factored ones are of whole
// tensors: 0 here.
double MomentBytes(const Question& question, double trained) {
  const double wide = question.engine.memory.moment_bytes;
  double bytes = 0;
  for (const StateArray& array : StateArrays(question.numerics.optimizer)) {
    bytes += (array.is_codes() ? 1.0 : wide) / static_cast<double>(array.parameters_per_element());
  }
  return bytes * trained;
}

// How states of one group of parameters are cut: how many ranks share each kind.
struct Cut {
  double weights = 1;
  double gradients = 1;
  double rest = 1;
};

Cut CutOver(int zero_stage, double ranks) {
  return {.weights = zero_stage >= 3 ? ranks : 1,
          .gradients = zero_stage >= 2 ? ranks : 1,
          .rest = zero_stage >= 1 ? ranks : 1};
}

// `whole`: of `trained`, those whose weights and gradients are not cut.
void AddTrained(const Question& question, const Layout& layout, double trained, double whole,
                double rows_and_columns, const Cut& cut, StateBytes& states) {
  const MemoryHabits& habits = question.engine.memory;
  const bool full = question.numerics.precision == Precision::kFp32;
  const bool merged = habits.shards_are_master && layout.zero_stage == 3;
  const auto held = [&](double ranks) { return (trained - whole) / ranks + whole; };
  states.weights += (merged ? 4 : WeightBytes(question)) * held(cut.weights);
  states.gradients += (merged ? 4 : GradientBytes(question)) * held(cut.gradients);
  double rest = MomentBytes(question, trained) / cut.rest;
  // Means of rows and columns alone (arXiv:1804.04235, 4), whole on each rank.
  if (question.numerics.optimizer == OptimizerStates::kFactored) rest = 4 * rows_and_columns;
  double master = full || merged || !habits.master_weights ? 0 : 4 * trained / cut.rest;
  if (layout.offloads_optimizer()) {
    states.host += master + rest;
    if (habits.host_updates) states.host += (full ? 8 : 4) * trained / cut.rest;
    rest = 0;
    master = 0;
  }
  states.master_weights += master;
  states.optimizer += rest;
  if (ActivationBytes(question.numerics.precision) == 2 && GradientBytes(question) == 2 &&
      habits.copies_fp16_gradients) {
    (habits.gradient_copies_stay ? states.gradients : states.gradient_copies) +=
        4 * trained / cut.rest;
  }
}

}  // namespace

// Int8: a scale per row, which rounds away.
double FrozenBytes(FrozenFormat format) {
  switch (format) {
    case FrozenFormat::kBf16:
      return 2;
    case FrozenFormat::kInt8:
      return 1;
    case FrozenFormat::kNf4:
      return 0.5 + 4.0 / 64;  // an fp32 scale per 64 values
    case FrozenFormat::kNf4Double:
      // An 8-bit scale per 64 values, an fp32 scale per 256 of those: 4.127 bits.
      return 0.5 + 1.0 / 64 + 4.0 / (64 * 256);
  }
  CHECK(false);
  return 0;
}

double WeightBytes(const Question& question) {
  return question.numerics.precision == Precision::kFp32 ? 4 : question.engine.memory.weight_bytes;
}

double WeightBytes(const Question& question, const StageParameters& parameters) {
  const double wide = WeightBytes(question);
  if (!question.adapters) return wide * parameters.all();
  return FrozenBytes(question.adapters->frozen) * (parameters.linear + parameters.experts) +
         wide * (parameters.tables + parameters.vectors + parameters.adapters);
}

double GradientBytes(const Question& question) {
  if (question.numerics.precision == Precision::kFp32) return 4;
  const MemoryHabits& habits = question.engine.memory;
  return question.numerics.precision == Precision::kFp16 ? habits.fp16_gradient_bytes
                                                         : habits.gradient_bytes;
}

double OffloadedBytes(const Question& question) {
  const bool has_master =
      question.numerics.precision != Precision::kFp32 && question.engine.memory.master_weights;
  return (has_master ? 4 : 0) + MomentBytes(question, 1);
}

double LocalVocabulary(const Question& question, const Layout& layout) {
  const auto multiple = static_cast<double>(question.engine.memory.vocabulary_multiple);
  const auto vocabulary = static_cast<double>(question.model.vocab_size);
  return std::ceil(vocabulary / (multiple * layout.tp)) * multiple;
}

namespace {

StageParameters ParametersOfBlock(const Question& question, const ModelShape& model,
                                  const Layout& layout) {
  const Widths widths = WidthsOf(model, layout.tp, layout.expert_tp(), layout.ep);
  const Widths whole = WidthsOf(model, /*tp=*/1, /*expert_tp=*/1, layout.ep);
  const double matrices = widths.gated + 1;
  StageParameters block;
  block.linear = AttentionWeights(widths) + matrices * widths.hidden * widths.ffn;
  block.experts = widths.local_experts * matrices * widths.hidden * widths.expert;
  block.vectors = VectorsOfBlock(model, widths);
  if (question.adapters) SetAdapters(*question.adapters, widths, block);
  block.rows_and_columns = RowsAndColumns(whole) + VectorsOfBlock(model, whole);
  return block;
}

void AddBlocks(double count, const StageParameters& block, StageParameters& sum) {
  sum.linear += count * block.linear;
  sum.experts += count * block.experts;
  sum.vectors += count * block.vectors;
  sum.adapters += count * block.adapters;
  sum.expert_adapters += count * block.expert_adapters;
  sum.rows_and_columns += count * block.rows_and_columns;
}

// All blocks of a stage.
StageParameters BlocksOfStage(const Question& question, const Layout& layout, int stage,
                              const BlockKinds& kinds) {
  const ModelShape& model = question.model;
  const int64_t all = StageBlockCount(layout, model.num_blocks, stage);
  const int64_t dense =
      model.num_dense_blocks == 0
          ? 0
          : StageBlocksBefore(layout, model.num_blocks, stage, model.num_dense_blocks);
  StageParameters blocks;
  AddBlocks(static_cast<double>(all - dense), kinds.block, blocks);
  if (dense > 0) AddBlocks(static_cast<double>(dense), kinds.dense, blocks);
  return blocks;
}

}  // namespace

StageParameters BlockParameters(const Question& question, const Layout& layout) {
  return ParametersOfBlock(question, question.model, layout);
}

BlockKinds::BlockKinds(const Question& question, const Layout& layout)
    : block(BlockParameters(question, layout)) {
  if (question.model.num_dense_blocks == 0) return;
  dense = ParametersOfBlock(question, OfDenseBlocks(question.model), layout);
}

StageParameters MeanBlockParameters(const Question& question, const Layout& layout, int stage,
                                    const BlockKinds& kinds) {
  const int64_t count = StageBlockCount(layout, question.model.num_blocks, stage);
  if (question.model.num_dense_blocks == 0 || count == 0) return kinds.block;
  StageParameters mean;
  AddBlocks(1 / static_cast<double>(count), BlocksOfStage(question, layout, stage, kinds), mean);
  return mean;
}

BucketCounts BucketCountsOf(const Question& question, const Layout& layout, int stage) {
  const bool first = stage == 0;
  const bool last = stage == layout.pp - 1;
  const bool share_table = first && last && question.model.tied_embeddings;
  return {.ends = (first ? 1 : 0) + (last && !share_table ? 1 : 0),
          .blocks = StageBlockCount(layout, question.model.num_blocks, stage)};
}

StageParameters ParametersOf(const Question& question, const Layout& layout, int stage) {
  return ParametersOf(question, layout, stage, BlockKinds(question, layout));
}

StageParameters ParametersOf(const Question& question, const Layout& layout, int stage,
                             const BlockKinds& kinds) {
  const ModelShape& model = question.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const bool first = stage == 0;
  const bool last = stage == layout.pp - 1;
  StageParameters parameters = BlocksOfStage(question, layout, stage, kinds);
  const double blocks_dense = parameters.dense();
  const double table = LocalVocabulary(question, layout);
  const auto add_table = [&](double rows, double whole_rows) {
    parameters.tables += rows * hidden;
    parameters.rows_and_columns += whole_rows + hidden;
  };
  const auto vocabulary = static_cast<double>(model.vocab_size);
  const auto positions = static_cast<double>(model.max_positions);
  if (first) add_table(table, vocabulary);
  if (first && model.learned_positions) add_table(positions, positions);
  // A tied table is held at both ends of the pipeline, once if they are the same stage.
  if (last && !(model.tied_embeddings && first)) add_table(table, vocabulary);
  if (last) {
    const double norm = model.norm_vectors() * hidden;
    parameters.vectors += norm;
    parameters.rows_and_columns += norm;
  }
  if (layout.zero_stage < 2 || !question.engine.memory.arena || question.adapters) {
    return parameters;
  }
  const BucketCounts counts = BucketCountsOf(question, layout, stage);
  const StageParameters block = MeanBlockParameters(question, layout, stage, kinds);
  for (const WholePlace place : {WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
    if (counts.at(place) != 1) continue;
    parameters.whole_dense += block.dense();
    parameters.whole_experts += block.experts;
  }
  if (counts.ends == 1) parameters.whole_dense += parameters.dense() - blocks_dense;
  return parameters;
}

StageShare::StageShare(const Question& question, const Layout& layout, int stage)
    : StageShare(question, layout, stage, BlockKinds(question, layout)) {}

StageShare::StageShare(const Question& question, const Layout& layout, int stage,
                       const BlockKinds& kinds)
    : block(MeanBlockParameters(question, layout, stage, kinds)),
      own(ParametersOf(question, layout, stage, kinds)) {
  own.whole_dense = own.whole_experts = 0;
}

StateBytes StatesOf(const Question& question, const Layout& layout,
                    const StageParameters& parameters) {
  const auto ranks = static_cast<double>(layout.zero_ranks());
  const Cut dense = CutOver(layout.zero_stage, ranks);
  // Experts are spread over ep ranks: the rest hold the same ones.
  const Cut experts = CutOver(layout.zero_stage, layout.expert_ranks(ranks));
  StateBytes states;
  if (question.adapters) {
    const double frozen = FrozenBytes(question.adapters->frozen);
    const double wide = WeightBytes(question);
    states.weights =
        (frozen * parameters.linear + wide * (parameters.tables + parameters.vectors)) /
            dense.weights +
        frozen * parameters.experts / experts.weights;
    const double of_experts = parameters.expert_adapters;
    const double others = parameters.adapters - of_experts;
    AddTrained(question, layout, others, 0, others, dense, states);
    AddTrained(question, layout, of_experts, 0, of_experts, experts, states);
    return states;
  }
  AddTrained(question, layout, parameters.dense(), parameters.whole_dense,
             parameters.rows_and_columns, dense, states);
  AddTrained(question, layout, parameters.experts, parameters.whole_experts, 0, experts, states);
  if (question.numerics.precision == Precision::kFp8) {
    const double cache = question.engine.memory.fp8_cache_bytes;
    states.weights +=
        cache * (parameters.linear / dense.weights + parameters.experts / experts.weights);
  }
  return states;
}

}  // namespace weft
