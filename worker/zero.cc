#include "worker/zero.h"

#include "plan/errors.h"

namespace weft {
namespace {

// Part `part` of a run.
View PartOf(View run, int part, const Sharding& sharding) {
  run.cols /= sharding.parts;
  run.data = static_cast<char*>(run.data) + part * run.bytes();
  return run;
}

}  // namespace

Zero::Zero(const Parameters& parameters, Device& device, RankGroups& groups)
    : parameters_(parameters),
      device_(device),
      groups_(groups),
      sharding_(ShardingOf(groups.layout())),
      part_(groups.layout().grid().DataIndexOf(groups.rank()) % sharding_.parts) {}

const BucketViews& Zero::Of(int bucket) const {
  return parameters_.buckets()[static_cast<size_t>(bucket)];
}

absl::Status Zero::OpenWeights(int bucket) {
  if (!sharding_.weights) return absl::OkStatus();
  const BucketViews& views = Of(bucket);
  device_.Copy(PartOf(views.weights, part_, sharding_), views.own_weights);
  return groups_.GatherOverShards(views.weights);
}

void Zero::OpenGradients(int bucket) {
  if (sharding_.gradients) device_.Zero(Of(bucket).gradients);
}

absl::Status Zero::CloseGradients(int bucket) {
  if (!sharding_.gradients) return absl::OkStatus();
  const BucketViews& views = Of(bucket);
  RETURN_IF_ERROR(groups_.StartSumScatterOverShards(views.gradients, &newest_));
  RETURN_IF_ERROR(groups_.Wait(newest_));
  device_.Add(PartOf(views.gradients, part_, sharding_), views.own_gradients);
  return absl::OkStatus();
}

// Sums, not means: the loss is already scaled by the tokens of the global batch.
absl::Status Zero::StartReduction(int bucket) {
  const BucketViews& views = Of(bucket);
  if (!sharding_.gradients) {
    RETURN_IF_ERROR(groups_.StartSumScatterOverShards(views.gradients, &newest_));
  }
  return groups_.StartSumOverReplicas(views.own_gradients, &newest_);
}

absl::Status Zero::AwaitReductions() {
  return groups_.Wait(newest_);
}

absl::Status Zero::GatherParameters(int bucket) {
  CHECK(!sharding_.weights);
  return groups_.GatherOverShards(Of(bucket).weights);
}

absl::Status Zero::GatherAllParameters() {
  const auto count = static_cast<int>(parameters_.buckets().size());
  for (int bucket = 0; bucket < count && !sharding_.weights; ++bucket) {
    RETURN_IF_ERROR(GatherParameters(bucket));
  }
  return absl::OkStatus();
}

}  // namespace weft
