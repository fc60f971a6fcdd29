#include "worker/state/zero.h"

#include <algorithm>
#include <utility>

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
      part_(groups.layout().grid().DataIndexOf(groups.rank()) % sharding_.parts),
      gathers_(parameters.buckets().size()) {}

const BucketViews& Zero::Of(int bucket) const {
  return parameters_.buckets()[static_cast<size_t>(bucket)];
}

void Zero::Begin(absl::Span<const int> weights) {
  to_open_ = weights;
  weights_ = {};
}

absl::Status Zero::OpenWeights(int bucket) {
  RETURN_IF_ERROR(groups_.Wait(std::exchange(gathers_[static_cast<size_t>(bucket)], 0)));
  if (!sharding_.weights) return absl::OkStatus();
  CHECK(!to_open_.empty() && to_open_.front() == bucket);
  to_open_.remove_prefix(1);
  const bool is_in_parts = Of(bucket).sharding.weights;
  const WholePlace place = Of(bucket).place;
  if (is_in_parts) {
    RETURN_IF_ERROR(StartGather(bucket));
    RETURN_IF_ERROR(groups_.Wait(WeightsAt(place).ticket));
  }
  // The next one that is in parts, unless its place is that of this one.
  const auto next = std::find_if(to_open_.begin(), to_open_.end(),
                                 [this](int later) { return Of(later).sharding.weights; });
  if (next == to_open_.end() || (is_in_parts && Of(*next).place == place)) return absl::OkStatus();
  return StartGather(*next);
}

absl::Status Zero::StartGather(int bucket) {
  const BucketViews& views = Of(bucket);
  Gather& gather = WeightsAt(views.place);
  if (gather.bucket == bucket) return absl::OkStatus();
  gather.bucket = bucket;
  device_.Copy(PartOf(views.weights, part_, sharding_), views.own_weights);
  return groups_.StartGatherOverShards(views.weights, &gather.ticket);
}

absl::Status Zero::OpenGradients(int bucket) {
  if (!Of(bucket).sharding.gradients) return absl::OkStatus();
  RETURN_IF_ERROR(Settle(GradientsAt(Of(bucket).place)));
  device_.Zero(Of(bucket).gradients);
  return absl::OkStatus();
}

absl::Status Zero::CloseGradients(int bucket) {
  const BucketViews& views = Of(bucket);
  if (!views.sharding.gradients) return absl::OkStatus();
  Scatter& scatter = GradientsAt(views.place);
  CHECK(scatter.bucket == -1);
  scatter.bucket = bucket;
  if (!views.is_narrow()) {
    return groups_.StartSumScatterOverShards(views.gradients, &scatter.ticket);
  }
  RETURN_IF_ERROR(Settle(SumAt(views.place)));
  device_.Copy(views.reduced, views.gradients);
  return groups_.StartSumScatterOverShards(views.reduced, &scatter.ticket);
}

absl::Status Zero::Settle(Scatter& scatter) {
  if (scatter.bucket == -1) return absl::OkStatus();
  const int bucket = scatter.bucket;
  const BucketViews& views = Of(bucket);
  RETURN_IF_ERROR(groups_.Wait(scatter.ticket));
  const View sum = PartOf(views.gradients, part_, sharding_);
  if (views.is_narrow()) device_.Copy(sum, PartOf(views.reduced, part_, sharding_));
  device_.Add(sum, views.own_gradients);
  const bool then_reduce = scatter.then_reduce;
  scatter = {};
  return then_reduce ? StartSumOverReplicas(bucket) : absl::OkStatus();
}

absl::Status Zero::StartSumOverReplicas(int bucket) {
  const BucketViews& views = Of(bucket);
  if (!views.is_narrow()) return groups_.StartSumOverReplicas(views.own_gradients, &newest_);
  if (groups_.replicas() == 1) return absl::OkStatus();
  const View part = PartOf(views.reduced, part_, sharding_);
  device_.Copy(part, views.own_gradients);
  Sum& sum = SumAt(views.place);
  CHECK(sum.bucket == -1);
  sum.bucket = bucket;
  return groups_.StartSumOverReplicas(part, &sum.ticket);
}

absl::Status Zero::Settle(Sum& sum) {
  if (sum.bucket == -1) return absl::OkStatus();
  const BucketViews& views = Of(sum.bucket);
  RETURN_IF_ERROR(groups_.Wait(sum.ticket));
  device_.Copy(views.own_gradients, PartOf(views.reduced, part_, sharding_));
  sum = {};
  return absl::OkStatus();
}

// Sums, not means: the loss is already scaled by the tokens of the global batch.
absl::Status Zero::StartReduction(int bucket) {
  const BucketViews& views = Of(bucket);
  if (views.sharding.gradients) {
    Scatter& scatter = GradientsAt(views.place);
    CHECK(scatter.bucket == bucket);
    scatter.then_reduce = true;
    return absl::OkStatus();
  }
  if (!views.is_narrow()) {
    RETURN_IF_ERROR(groups_.StartSumScatterOverShards(views.gradients, &newest_));
    return groups_.StartSumOverReplicas(views.own_gradients, &newest_);
  }
  Sum& sum = SumAt(views.place);
  RETURN_IF_ERROR(Settle(sum));
  device_.Copy(views.reduced, views.gradients);
  sum.bucket = bucket;
  RETURN_IF_ERROR(groups_.StartSumScatterOverShards(views.reduced, &sum.ticket));
  return groups_.StartSumOverReplicas(PartOf(views.reduced, part_, sharding_), &sum.ticket);
}

absl::Status Zero::AwaitReductions() {
  for (Scatter& scatter : gradients_) RETURN_IF_ERROR(Settle(scatter));
  for (Sum& sum : sums_) RETURN_IF_ERROR(Settle(sum));
  return groups_.Wait(newest_);
}

absl::Status Zero::StartGatherParameters(int bucket) {
  CHECK(!Of(bucket).sharding.weights);
  return groups_.StartGatherOverShards(Of(bucket).weights, &gathers_[static_cast<size_t>(bucket)]);
}

absl::Status Zero::AwaitParameters() {
  for (int64_t& ticket : gathers_) RETURN_IF_ERROR(groups_.Wait(std::exchange(ticket, 0)));
  return absl::OkStatus();
}

absl::Status Zero::GatherAllParameters() {
  const auto count = static_cast<int>(parameters_.buckets().size());
  for (int bucket = 0; bucket < count; ++bucket) {
    if (Of(bucket).sharding.weights) continue;
    RETURN_IF_ERROR(groups_.GatherOverShards(Of(bucket).weights));
  }
  return absl::OkStatus();
}

}  // namespace weft
