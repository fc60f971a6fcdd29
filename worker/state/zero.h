// Zero: what the ZeRO stage of a layout does with buckets of weights and gradients (Rajbhandari et
// al., arXiv:1910.02054, 5): makes whole what passes need and is kept in parts, and hands on what
// they made of it. Without ZeRO all of it does nothing but the sum of gradients over the data
// group.
//
// What moves, moves beside the passes: a bucket's weights are gathered while the pass works on the
// bucket before it, its gradients summed while the pass works on the next. A bucket is open until a
// call for another bucket of its place (plan/shards/whole_places.h); weights that still lie there
// are not gathered again within a pass of the schedule. What an update has made of weights that are
// kept whole is gathered beside the next step's passes, each of which waits for the buckets that it
// opens. Transfers between stages lie between calls:
// what was begun before them goes on beside them.
//
// Where sums are narrow (training.reduce_dtype) what is summed is a copy in 16 bits, in the
// bucket's place, and what it becomes is widened before the place is taken again. All ranks that
// share buckets are of one stage and make the same calls in the same order. Used by the trainer's
// thread.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/shards/buckets.h"
#include "plan/shards/whole_places.h"
#include "worker/backend/device.h"
#include "worker/state/groups.h"
#include "worker/state/parameters.h"

namespace weft {

class Zero {
 public:
  // Borrows all three.
  Zero(const Parameters& parameters, Device& device, RankGroups& groups);

  // Before a schedule is carried out: weights may have changed. `weights`: the buckets of the
  // OpenWeights calls to come, in their order (WeightsOf of plan/schedule/stage_buckets.h);
  // borrowed.
  void Begin(absl::Span<const int> weights);

  // Around what a pass does with a bucket. Of one that is kept in parts:
  absl::Status OpenWeights(int bucket);     // makes them whole; of any bucket, waits for its gather
  absl::Status OpenGradients(int bucket);   // clears the whole
  absl::Status CloseGradients(int bucket);  // begins to sum them into owners' parts

  // Actions of a schedule (plan/schedule/schedule.h). Each rank's own gradients begin to become
  // sums over the data group, and nobody touches them until they are awaited.
  absl::Status StartReduction(int bucket);
  // Also waits for the sums that closing has begun.
  absl::Status AwaitReductions();
  // All weights begin to become what their owners hold; nobody touches them until they are opened.
  absl::Status StartGatherParameters(int bucket);
  // Waits for all of these that are not opened: before weights are read outside of passes.
  absl::Status AwaitParameters();
  // Whether opening the bucket waits for that.
  bool IsGathering(int bucket) const { return gathers_[static_cast<size_t>(bucket)] != 0; }
  // Gathers all buckets whose weights are kept whole, after owners have set theirs.
  absl::Status GatherAllParameters();

 private:
  struct Gather {  // what lies in a place of weights, or is on its way
    int bucket = -1;
    int64_t ticket = 0;
  };
  struct Scatter {  // what leaves a place of gradients
    int bucket = -1;
    int64_t ticket = 0;
    bool then_reduce = false;  // over replicas of the parts
  };
  struct Sum {  // what is summed in a place of 16 bits, to become a bucket's own gradients
    int bucket = -1;
    int64_t ticket = 0;
  };

  const BucketViews& Of(int bucket) const;
  Gather& WeightsAt(WholePlace place) { return weights_[static_cast<size_t>(place)]; }
  Scatter& GradientsAt(WholePlace place) { return gradients_[static_cast<size_t>(place)]; }
  absl::Status StartGather(int bucket);
  Sum& SumAt(WholePlace place) { return sums_[static_cast<size_t>(place)]; }
  absl::Status Settle(Scatter& scatter);
  absl::Status Settle(Sum& sum);
  // The own gradients begin to become sums over the ranks that own the same.
  absl::Status StartSumOverReplicas(int bucket);

  const Parameters& parameters_;
  Device& device_;
  RankGroups& groups_;
  const Sharding sharding_;
  const int part_;
  absl::Span<const int> to_open_;  // buckets whose weights will be opened, in order
  std::array<Gather, kWholePlaces> weights_;
  std::array<Scatter, kWholePlaces> gradients_;
  std::array<Sum, kWholePlaces> sums_;
  std::vector<int64_t> gathers_;  // tickets by bucket, after an update; 0: nothing to wait for
  int64_t newest_ = 0;            // ticket of the reduction that was started last
};

}  // namespace weft
