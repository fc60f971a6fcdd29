// Zero: what the ZeRO stage of a layout does with buckets of weights and gradients (Rajbhandari et
// al., arXiv:1910.02054, 5): makes whole what passes need and is kept in parts, and hands on what
// they made of it. Without ZeRO all of it does nothing but the sum of gradients over the data
// group.
//
// A bucket is open from one call to the next for another bucket: there is one whole buffer for all.
// Used by the trainer's thread.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "plan/buckets.h"
#include "worker/backend/device.h"
#include "worker/groups.h"
#include "worker/parameters.h"

namespace weft {

class Zero {
 public:
  // Borrows all three.
  Zero(const Parameters& parameters, Device& device, RankGroups& groups);

  // Around what a pass does with a bucket. Collective among the ranks that share it.
  absl::Status OpenWeights(int bucket);     // stage 3: gathers them
  void OpenGradients(int bucket);           // from stage 2: clears the whole
  absl::Status CloseGradients(int bucket);  // from stage 2: sums them into the owners' parts

  // Actions of a schedule (plan/schedule.h). Each rank's own gradients begin to become sums over
  // the data group, and nobody touches them until they are awaited.
  absl::Status StartReduction(int bucket);
  absl::Status AwaitReductions();
  // All weights become what their owners hold.
  absl::Status GatherParameters(int bucket);
  // Of all buckets whose weights are kept whole: after owners have set theirs.
  absl::Status GatherAllParameters();

 private:
  const BucketViews& Of(int bucket) const;

  const Parameters& parameters_;
  Device& device_;
  RankGroups& groups_;
  const Sharding sharding_;
  const int part_;
  int64_t newest_ = 0;  // ticket of what was started last
};

}  // namespace weft
