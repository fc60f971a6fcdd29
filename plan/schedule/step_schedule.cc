#include "plan/schedule/step_schedule.h"

#include "plan/errors.h"
#include "plan/schedule/stage_buckets.h"
#include "plan/shards/buckets.h"
#include "plan/shards/shard.h"
#include "plan/shards/whole_places.h"

namespace weft {

std::vector<Action> StepSchedule(const ModelShape& model, const Layout& layout, int stage) {
  CHECK(stage >= 0 && stage < layout.pp);
  const std::vector<Action> compute =
      ComputeOrder(layout.pp_schedule, stage, layout.pp,
                   static_cast<int>(layout.gradient_accumulation_steps), layout.virtual_stages);
  std::vector<Action> actions = WithTransfers(stage, layout.pp, compute, layout.virtual_stages);
  const StageBuckets buckets =
      StageBucketsOf(layout, model.num_blocks, stage, model.tied_embeddings);
  const auto sharding_of = [&](int bucket) {
    return ShardingAt(buckets.PlaceOf(bucket), buckets.counts(), layout);
  };
  std::vector<int> reduced;  // what passes have not summed over the whole data group
  for (int bucket = 0; bucket < buckets.count; ++bucket) {
    const Sharding sharding = sharding_of(bucket);
    const int summed = sharding.gradients ? sharding.parts : 1;  // ranks, by the passes
    if (layout.data_group() > summed && bucket != buckets.copied_table) reduced.push_back(bucket);
  }
  if (!reduced.empty()) actions = WithReductions(actions, buckets, reduced);
  const bool has_data_group = layout.data_group() > 1;
  // The two stages cut the table into other parts, so its copies are summed while they are whole.
  // After that both hold the same gradient, and the sum over the data group, in the same order on
  // both, keeps them equal.
  if (buckets.copied_table >= 0) {
    CHECK(!sharding_of(buckets.copied_table).gradients);
    actions.push_back({.op = Op::kReduceTiedEmbedding});
    if (has_data_group) {
      actions.push_back({.op = Op::kReduceGradients, .bucket = buckets.copied_table});
    }
  }
  if (has_data_group) actions.push_back({.op = Op::kAwaitGradients});
  // Neighbours hold equal parts: less is left to sum now.
  if (HasGradientParts(model, layout)) {
    actions.push_back({.op = Op::kReduceParts});
  }
  // Also on a single rank: it carries the loss and the stop flag besides the norm.
  actions.push_back({.op = Op::kReduceNorm});
  actions.push_back({.op = Op::kUpdate});
  for (int bucket = 0; bucket < buckets.count; ++bucket) {
    const Sharding sharding = sharding_of(bucket);
    if (sharding.parts == 1 || sharding.weights) continue;
    actions.push_back({.op = Op::kGatherParameters, .bucket = bucket});
  }
  return actions;
}

}  // namespace weft
