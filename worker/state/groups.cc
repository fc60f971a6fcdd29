#include "worker/state/groups.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/spec/layout_text.h"
#include "worker/state/world_sum.h"

namespace weft {

absl::Status ToStatus(const BackendStatus& status, absl::string_view doing) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.code), absl::StrCat(doing, ": ", status.text)};
}

RankGroups::RankGroups(const Layout& layout, Comm& comm, ProgressWriter* progress)
    : layout_(layout),
      comm_(comm),
      at_(layout.grid().CoordinatesOf(comm.rank())),
      sharding_(ShardingOf(layout)),
      progress_(progress != nullptr ? *progress : unseen_) {}

RankGroups::~RankGroups() {
  if (waited_ == started_ && tensor_calls_ == 0) return;
  comm_.Interrupt("this rank goes no further");
  (void)comm_.Wait(started_);
  (void)comm_.WaitBeside();
}

absl::StatusOr<std::unique_ptr<RankGroups>> RankGroups::Create(const Layout& layout,
                                                               int kv_head_copies, Comm& comm,
                                                               ProgressWriter* progress) {
  if (comm.world_size() != layout.world_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("world size: ", comm.world_size(), " workers were started, but the layout ",
                     LayoutText(layout), " needs ", layout.world_size()));
  }
  auto groups = std::unique_ptr<RankGroups>(new RankGroups(layout, comm, progress));
  const RankGrid grid = layout.grid();
  const int rank = comm.rank();
  ASSIGN_OR_RETURN(groups->tensor_, groups->NewGroup(MeetingAxis::kTensor, GroupUse::kBlocking,
                                                     grid.GroupOf(Axis::kTensor, rank)));
  const std::vector<int> data = grid.DataGroupOf(rank);
  const int parts = groups->sharding_.parts;
  const int part = grid.DataIndexOf(rank) % parts;
  std::vector<int> replicas;
  for (size_t i = static_cast<size_t>(part); i < data.size(); i += static_cast<size_t>(parts)) {
    replicas.push_back(data[i]);
  }
  const GroupUse beside = StartsCalls(layout) ? GroupUse::kStarted : GroupUse::kBlocking;
  ASSIGN_OR_RETURN(groups->replicas_, groups->NewGroup(MeetingAxis::kReplicas, beside, replicas));
  const bool has_embedding = groups->is_first_stage() || groups->is_last_stage();
  const std::vector<int> copies = has_embedding ? grid.EmbeddingGroupOf(rank) : std::vector<int>();
  ASSIGN_OR_RETURN(groups->tied_copies_,
                   groups->NewGroup(MeetingAxis::kTiedCopies, GroupUse::kBlocking, copies));
  std::vector<int> all(static_cast<size_t>(layout.world_size()));
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(groups->world_, groups->NewGroup(MeetingAxis::kWorld, GroupUse::kBlocking, all));
  ASSIGN_OR_RETURN(groups->kv_copies_,
                   groups->NewGroup(MeetingAxis::kKvCopies, GroupUse::kBlocking,
                                    grid.TensorNeighboursOf(rank, kv_head_copies)));
  const std::ptrdiff_t whole_groups_before = grid.DataIndexOf(rank) / parts;
  const auto first = data.begin() + whole_groups_before * parts;
  ASSIGN_OR_RETURN(groups->shards_,
                   groups->NewGroup(MeetingAxis::kShards, beside, {first, first + parts}));
  ASSIGN_OR_RETURN(groups->context_, groups->NewGroup(MeetingAxis::kContext, GroupUse::kBlocking,
                                                      grid.GroupOf(Axis::kContext, rank)));
  if (StartsBeside(layout)) {
    ASSIGN_OR_RETURN(groups->tensor_beside_,
                     groups->NewGroup(MeetingAxis::kTensor, GroupUse::kBeside,
                                      grid.GroupOf(Axis::kTensor, rank)));
  }
  return groups;
}

absl::StatusOr<int> RankGroups::NewGroup(MeetingAxis axis, GroupUse use,
                                         const std::vector<int>& ranks) {
  progress_.Join(axis, ranks);
  int group = -1;
  RETURN_IF_ERROR(
      ToStatus(comm_.NewGroup(use, ranks.data(), static_cast<int>(ranks.size()), &group),
               "make a group of ranks"));
  return group;
}

int RankGroups::replica_index() const {
  return layout_.grid().DataIndexOf(rank()) / sharding_.parts;
}

int RankGroups::replicas() const {
  return layout_.data_group() / sharding_.parts;
}

int RankGroups::RankOfStage(int stage) const {
  GridCoordinates there = at_;
  there.pp = stage;
  return layout_.grid().RankOf(there);
}

absl::Status RankGroups::SumOverTensor(View data) {
  if (layout_.tp == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kTensor);
  return ToStatus(comm_.AllReduce(tensor_, ReduceOp::kSum, data), "sum over tp");
}

absl::Status RankGroups::MaxOverTensor(View data) {
  if (layout_.tp == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kTensor);
  return ToStatus(comm_.AllReduce(tensor_, ReduceOp::kMax, data), "maximum over tp");
}

absl::Status RankGroups::ReduceScatterOverTensor(View data) {
  const InCall call(progress_, CallKind::kReduceScatter, MeetingAxis::kTensor);
  return ToStatus(comm_.ReduceScatter(tensor_, ReduceOp::kSum, data), "reduce-scatter over tp");
}

absl::Status RankGroups::AllGatherOverTensor(View data) {
  const InCall call(progress_, CallKind::kAllGather, MeetingAxis::kTensor);
  return ToStatus(comm_.AllGather(tensor_, data), "all-gather over tp");
}

// The rank is in the call while it starts it: where that is made at once, it waits there.
absl::Status RankGroups::StartOverTensor(CallKind kind, const CollectiveCall& call,
                                         absl::string_view doing) {
  const InCall in_call(progress_, kind, MeetingAxis::kTensor);
  tensor_calls_ = in_call.sequence();
  return ToStatus(comm_.StartBeside(call), doing);
}

absl::Status RankGroups::StartSumOverTensor(View data) {
  if (layout_.tp == 1) return absl::OkStatus();
  return StartOverTensor(
      CallKind::kAllReduce,
      {.kind = CollectiveKind::kAllReduce, .group = tensor_beside_, .data = data}, "sum over tp");
}

absl::Status RankGroups::StartReduceScatterOverTensor(View data) {
  return StartOverTensor(
      CallKind::kReduceScatter,
      {.kind = CollectiveKind::kReduceScatter, .group = tensor_beside_, .data = data},
      "reduce-scatter over tp");
}

absl::Status RankGroups::StartAllGatherOverTensor(View data) {
  return StartOverTensor(
      CallKind::kAllGather,
      {.kind = CollectiveKind::kAllGather, .group = tensor_beside_, .data = data},
      "all-gather over tp");
}

absl::Status RankGroups::AwaitTensor() {
  if (tensor_calls_ == 0) return absl::OkStatus();
  progress_.EnterWait(CallKind::kAwaitStarted, MeetingAxis::kTensor, tensor_calls_);
  RETURN_IF_ERROR(ToStatus(comm_.WaitBeside(), "wait for what moves over tp"));
  progress_.Leave();
  tensor_calls_ = 0;
  return absl::OkStatus();
}

absl::Status RankGroups::SumScatterOverContext(View data) {
  const InCall call(progress_, CallKind::kReduceScatter, MeetingAxis::kContext);
  return ToStatus(comm_.ReduceScatter(context_, ReduceOp::kSum, data),
                  "sum gradients of keys and values over cp");
}

absl::Status RankGroups::GatherOverContext(View data) {
  const InCall call(progress_, CallKind::kAllGather, MeetingAxis::kContext);
  return ToStatus(comm_.AllGather(context_, data), "gather keys and values over cp");
}

absl::Status RankGroups::SumOverKvCopies(View data) {
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kKvCopies);
  return ToStatus(comm_.AllReduce(kv_copies_, ReduceOp::kSum, data),
                  "sum over the ranks that share kv heads");
}

absl::Status RankGroups::GatherOverShards(View run) {
  if (sharding_.parts == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllGather, MeetingAxis::kShards);
  return ToStatus(comm_.AllGather(shards_, run), "gather a bucket of weights from data ranks");
}

absl::Status RankGroups::SumOverShards(View data) {
  if (sharding_.parts == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kShards);
  return ToStatus(comm_.AllReduce(shards_, ReduceOp::kSum, data), "sum over data ranks");
}

absl::Status RankGroups::SumOverReplicas(View data) {
  if (replicas() == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kReplicas);
  return ToStatus(comm_.AllReduce(replicas_, ReduceOp::kSum, data), "sum over replicas");
}

absl::Status RankGroups::Start(MeetingAxis axis, const CollectiveCall& call,
                               absl::string_view doing, int64_t* ticket) {
  const int64_t sequence = progress_.Count(axis);
  RETURN_IF_ERROR(ToStatus(comm_.Start(call, ticket), doing));
  started_ = *ticket;
  under_way_.push_back({*ticket, axis, sequence});
  return absl::OkStatus();
}

absl::Status RankGroups::StartSumScatterOverShards(View run, int64_t* ticket) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return Start(MeetingAxis::kShards,
               {.kind = CollectiveKind::kReduceScatter, .group = shards_, .data = run},
               "start to sum a bucket of gradients over data ranks", ticket);
}

absl::Status RankGroups::StartGatherOverShards(View run, int64_t* ticket) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return Start(MeetingAxis::kShards,
               {.kind = CollectiveKind::kAllGather, .group = shards_, .data = run},
               "start to gather a bucket of weights from data ranks", ticket);
}

absl::Status RankGroups::StartSumOverReplicas(View data, int64_t* ticket) {
  if (replicas() == 1) return absl::OkStatus();
  return Start(MeetingAxis::kReplicas,
               {.kind = CollectiveKind::kAllReduce, .group = replicas_, .data = data},
               "start to sum gradients over data ranks", ticket);
}

// Who has not come to the newest of these calls is waited for, whichever of them is at hand.
absl::Status RankGroups::Wait(int64_t ticket) {
  const auto newest = std::find_if(under_way_.rbegin(), under_way_.rend(),
                                   [&](const Started& call) { return call.ticket <= ticket; });
  const bool waits = newest != under_way_.rend();
  if (waits) progress_.EnterWait(CallKind::kAwaitStarted, newest->axis, newest->sequence);
  RETURN_IF_ERROR(ToStatus(comm_.Wait(ticket), "wait for what moves beside the passes"));
  if (waits) progress_.Leave();
  waited_ = std::max(waited_, ticket);
  std::erase_if(under_way_, [&](const Started& call) { return call.ticket <= waited_; });
  return absl::OkStatus();
}

absl::Status RankGroups::SumOverTiedCopies(View data) {
  CHECK(is_first_stage() || is_last_stage());
  if (layout_.pp == 1) return absl::OkStatus();
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kTiedCopies);
  return ToStatus(comm_.AllReduce(tied_copies_, ReduceOp::kSum, data),
                  "sum over the copies of the tied embedding");
}

absl::Status RankGroups::SumOverWorld(View totals) {
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kWorld);
  return ToStatus(comm_.AllReduce(world_, ReduceOp::kSum, totals), "sum over all ranks");
}

absl::Status RankGroups::Exchange(absl::Span<const Transfer> transfers) {
  const auto received = std::find_if(transfers.begin(), transfers.end(),
                                     [](const Transfer& transfer) { return !transfer.send; });
  const Transfer* const named = received != transfers.end() ? &*received : transfers.begin();
  const InCall call(progress_, CallKind::kExchange, MeetingAxis::kWorld,
                    transfers.empty() ? -1 : named->peer);
  return ToStatus(comm_.Exchange(transfers.data(), static_cast<int>(transfers.size())),
                  "exchange with the neighbouring stages");
}

absl::Status RankGroups::Barrier() {
  const InCall call(progress_, CallKind::kBarrier, MeetingAxis::kWorld);
  return ToStatus(comm_.Barrier(world_), "wait for all ranks");
}

absl::Status RankGroups::ProveSums() {
  std::vector<double> sum = WorldPart(comm_.rank(), comm_.world_size());
  const InCall call(progress_, CallKind::kAllReduce, MeetingAxis::kWorld);
  RETURN_IF_ERROR(ToStatus(
      comm_.AllReduceHost(world_, ReduceOp::kSum, sum.data(), static_cast<int>(sum.size())),
      "add up known values over all ranks"));
  return CheckWorldSum(sum, comm_.world_size());
}

absl::Status RankGroups::Check(absl::string_view doing) const {
  return ToStatus(comm_.FirstFailure(), doing);
}

}  // namespace weft
