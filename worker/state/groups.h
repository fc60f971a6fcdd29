// RankGroups: the reductions that one rank takes part in, by axis of the rank grid, over the
// backend's Comm. The rest of the worker never sees a group number. A group of one costs nothing.
// Used by the trainer's thread.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/shards/buckets.h"
#include "plan/spec/grid.h"
#include "plan/spec/layout.h"
#include "process/progress_page.h"
#include "worker/backend/comm.h"

namespace weft {

// The backend's code and text as a Status, led by `doing`: "step 12, all-reduce over tp: ...".
absl::Status ToStatus(const BackendStatus& status, absl::string_view doing);

class RankGroups {
 public:
  // Collective. FailedPrecondition if `comm` does not have layout.world_size() ranks.
  // `comm` outlives the groups.
  // `kv_head_copies`: neighbouring tp ranks that share a kv head. `progress`: the rank's page, on
  // which each call shows while it lasts; outlives the groups. Null: nobody looks.
  static absl::StatusOr<std::unique_ptr<RankGroups>> Create(const Layout& layout,
                                                            int kv_head_copies, Comm& comm,
                                                            ProgressWriter* progress = nullptr);
  // Whether ranks of such a layout make groups of GroupUse::kStarted: one that is alone with its
  // data has nobody to talk to beside the passes.
  static bool StartsCalls(const Layout& layout) { return layout.data_group() > 1; }
  // Whether they make groups of GroupUse::kBeside.
  static bool StartsBeside(const Layout& layout) { return layout.tp > 1; }
  // Where something that was started is not waited for, as after a failure, interrupts `comm` and
  // waits: buffers may go.
  ~RankGroups();
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  int rank() const { return comm_.rank(); }
  const GridCoordinates& at() const { return at_; }
  const Layout& layout() const { return layout_; }
  bool is_first_stage() const { return at_.pp == 0; }
  bool is_last_stage() const { return at_.pp == layout_.pp - 1; }
  // Returns which of the ranks that own the same this one is: the first counts, and saves, for all.
  int replica_index() const;
  int replicas() const;
  // Rank on `stage` with the same other coordinates.
  int RankOfStage(int stage) const;

  absl::Status SumOverTensor(View data);  // over tp
  absl::Status MaxOverTensor(View data);  // over tp
  // Comm::ReduceScatter (sum) and AllGather over tp. REQUIRES: tp divides data.elements().
  absl::Status ReduceScatterOverTensor(View data);
  absl::Status AllGatherOverTensor(View data);
  // The same three beside what the device computes (Comm::StartBeside), each followed by
  // AwaitTensor: until then their data is the Comm's. Several may be under way.
  absl::Status StartSumOverTensor(View data);
  absl::Status StartReduceScatterOverTensor(View data);
  absl::Status StartAllGatherOverTensor(View data);
  absl::Status AwaitTensor();
  // Over cp, in place: `data` is as many equal ranges of elements as there are ranks, in their
  // order; this rank's becomes the sum; all become what their ranks hold.
  absl::Status SumScatterOverContext(View data);
  absl::Status GatherOverContext(View data);
  absl::Status SumOverKvCopies(View data);    // over the tp ranks that share a kv head
  absl::Status SumOverTiedCopies(View data);  // first and last stage; REQUIRES: on one of them
  // Over the ranks that share a bucket under ZeRO: as many equal ranges, in their order, become
  // what their ranks hold.
  absl::Status GatherOverShards(View run);
  absl::Status SumOverShards(View data);    // over the same ranks
  absl::Status SumOverReplicas(View data);  // over the ranks that own the same
  // Beside other work (Comm::Start); the ticket is left as it is where there is nobody to talk to.
  // The same; over the same ranks, this rank's range becomes the sum; over the ranks that own the
  // same.
  absl::Status StartGatherOverShards(View run, int64_t* ticket);
  absl::Status StartSumScatterOverShards(View run, int64_t* ticket);
  absl::Status StartSumOverReplicas(View data, int64_t* ticket);
  // Until that call and all started before it are done. 0: nothing to wait for.
  absl::Status Wait(int64_t ticket);
  absl::Status SumOverWorld(View totals);  // of kF64, in rank order
  absl::Status Exchange(absl::Span<const Transfer> transfers);
  absl::Status Barrier();  // of all ranks
  // Collective: an all-reduce of known values over all ranks (world_sum.h).
  absl::Status ProveSums();
  // Comm::FirstFailure: after the device is through, before what it has computed counts.
  absl::Status Check(absl::string_view doing) const;

 private:
  // A call that was started and is not waited for yet, as the page counts it.
  struct Started {
    int64_t ticket = 0;
    MeetingAxis axis = MeetingAxis::kWorld;
    int64_t sequence = 0;
  };

  RankGroups(const Layout& layout, Comm& comm, ProgressWriter* progress);

  absl::Status Start(MeetingAxis axis, const CollectiveCall& call, absl::string_view doing,
                     int64_t* ticket);
  absl::Status StartOverTensor(CallKind kind, const CollectiveCall& call, absl::string_view doing);
  // Makes this rank's group along one axis; `ranks` is empty if it joins none.
  absl::StatusOr<int> NewGroup(MeetingAxis axis, GroupUse use, const std::vector<int>& ranks);

  const Layout layout_;
  Comm& comm_;
  const GridCoordinates at_;
  const Sharding sharding_;
  int tensor_ = -1;
  int tensor_beside_ = -1;  // the same ranks
  int replicas_ = -1;
  int context_ = -1;
  int kv_copies_ = -1;
  int tied_copies_ = -1;
  int world_ = -1;
  int shards_ = -1;
  int64_t started_ = 0, waited_ = 0;  // the newest tickets
  std::vector<Started> under_way_;    // in the order of their tickets
  int64_t tensor_calls_ = 0;          // the newest that is under way over tp; 0: none is
  ProgressWriter unseen_;
  ProgressWriter& progress_;
};

}  // namespace weft
