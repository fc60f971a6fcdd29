// Parameters and model states that one rank of a stage holds, from closed forms: counts that agree
// with the inventory (plan/spec/model.h), split over tp, pp, ep and ZeRO. Doubles: absurd questions
// must not overflow, and counts are exact up to 2^53. No allocation. Pure.
#pragma once
#include "plan/estimate/question.h"
#include "plan/shards/whole_places.h"
#include "plan/spec/layout.h"

namespace weft {

// On the fullest rank of a stage.
struct StageParameters {
  double linear = 0;           // weights of linear layers in blocks, outside experts
  double experts = 0;          // weights of experts that this rank holds
  double tables = 0;           // token and position embeddings, output matrix
  double vectors = 0;          // norms, biases, routers
  double adapters = 0;         // low-rank adapters, the only trained ones if there are any
  double expert_adapters = 0;  // of them, those of experts that this rank holds
  // Nothing cuts factored second moments: of whole matrices rows and columns, of vectors elements.
  double rows_and_columns = 0;
  // Parameters that ZeRO 2 and 3 leave whole are an arena's buckets with a place to themselves
  // (plan/shards/whole_places.h). 0 below these stages.
  double whole_dense = 0, whole_experts = 0;

  double dense() const { return linear + tables + vectors; }
  double all() const { return dense() + experts; }
};

// One block's, its experts included where blocks have any.
StageParameters BlockParameters(const Question& question, const Layout& layout);
// One block's, and one's of those before that, where the model has dense ones.
struct BlockKinds {
  BlockKinds(const Question& question, const Layout& layout);
  StageParameters block, dense;
};
// The mean of a stage's blocks, where some are dense and others have experts.
StageParameters MeanBlockParameters(const Question& question, const Layout& layout, int stage,
                                    const BlockKinds& kinds);
// Which buckets an arena keeps the stage's parameters in.
BucketCounts BucketCountsOf(const Question& question, const Layout& layout, int stage);
StageParameters ParametersOf(const Question& question, const Layout& layout, int stage);
// The same for those who know `kinds`: BlockKinds(question, layout).
StageParameters ParametersOf(const Question& question, const Layout& layout, int stage,
                             const BlockKinds& kinds);

// StageShare is what a stage holds, whatever ZeRO makes of it: for those who ask about many widths
// of its groups.
struct StageShare {
  StageShare(const Question& question, const Layout& layout, int stage);
  StageShare(const Question& question, const Layout& layout, int stage, const BlockKinds& kinds);
  StageParameters block, own;  // BlockParameters, ParametersOf without ZeRO
};

// Vocabulary rows of a rank, padded as the engine does.
double LocalVocabulary(const Question& question, const Layout& layout);

struct StateBytes {
  double weights = 0;
  double gradients = 0;
  double master_weights = 0;
  double optimizer = 0;
  double gradient_copies = 0;  // fp32, between update and next step only
  double host = 0;             // offloaded: master weights, optimizer, what a host's update needs

  double resting() const {
    return weights + gradients + master_weights + optimizer + gradient_copies;
  }
};
StateBytes StatesOf(const Question& question, const Layout& layout,
                    const StageParameters& parameters);

// Returns the offloaded bytes of each trained parameter: master weight and optimizer states.
// Factored ones, which are no number per parameter, count nothing.
double OffloadedBytes(const Question& question);

// Per weight of a linear layer whose base is frozen, its scales included.
double FrozenBytes(FrozenFormat format);

// Return the bytes of a weight, and of a gradient as accumulated, by the precision and the engine.
double WeightBytes(const Question& question);
double GradientBytes(const Question& question);
// Sums the weights of `parameters` as stored and gathered: a frozen base in its own format.
double WeightBytes(const Question& question, const StageParameters& parameters);

}  // namespace weft
