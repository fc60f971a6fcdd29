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

RankGroups::RankGroups(const Layout& layout, Comm& comm)
    : layout_(layout),
      comm_(comm),
      at_(layout.grid().CoordinatesOf(comm.rank())),
      sharding_(ShardingOf(layout)) {}

RankGroups::~RankGroups() {
  if (waited_ == started_) return;
  comm_.Interrupt("this rank goes no further");
  (void)comm_.Wait(started_);
}

absl::StatusOr<std::unique_ptr<RankGroups>> RankGroups::Create(const Layout& layout,
                                                               int kv_head_copies, Comm& comm) {
  if (comm.world_size() != layout.world_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("world size: ", comm.world_size(), " workers were started, but the layout ",
                     LayoutText(layout), " needs ", layout.world_size()));
  }
  auto groups = std::unique_ptr<RankGroups>(new RankGroups(layout, comm));
  const RankGrid grid = layout.grid();
  const int rank = comm.rank();
  ASSIGN_OR_RETURN(groups->tensor_,
                   groups->NewGroup(GroupUse::kBlocking, grid.GroupOf(Axis::kTensor, rank)));
  const std::vector<int> data = grid.DataGroupOf(rank);
  const int parts = groups->sharding_.parts;
  const int part = grid.DataIndexOf(rank) % parts;
  std::vector<int> replicas;
  for (size_t i = static_cast<size_t>(part); i < data.size(); i += static_cast<size_t>(parts)) {
    replicas.push_back(data[i]);
  }
  const GroupUse beside = StartsCalls(layout) ? GroupUse::kStarted : GroupUse::kBlocking;
  ASSIGN_OR_RETURN(groups->replicas_, groups->NewGroup(beside, replicas));
  const bool has_embedding = groups->is_first_stage() || groups->is_last_stage();
  const std::vector<int> copies = has_embedding ? grid.EmbeddingGroupOf(rank) : std::vector<int>();
  ASSIGN_OR_RETURN(groups->tied_copies_, groups->NewGroup(GroupUse::kBlocking, copies));
  std::vector<int> all(static_cast<size_t>(layout.world_size()));
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(groups->world_, groups->NewGroup(GroupUse::kBlocking, all));
  ASSIGN_OR_RETURN(
      groups->kv_copies_,
      groups->NewGroup(GroupUse::kBlocking, grid.TensorNeighboursOf(rank, kv_head_copies)));
  const std::ptrdiff_t whole_groups_before = grid.DataIndexOf(rank) / parts;
  const auto first = data.begin() + whole_groups_before * parts;
  ASSIGN_OR_RETURN(groups->shards_, groups->NewGroup(beside, {first, first + parts}));
  ASSIGN_OR_RETURN(groups->context_,
                   groups->NewGroup(GroupUse::kBlocking, grid.GroupOf(Axis::kContext, rank)));
  return groups;
}

absl::StatusOr<int> RankGroups::NewGroup(GroupUse use, const std::vector<int>& ranks) {
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
  return ToStatus(comm_.AllReduce(tensor_, ReduceOp::kSum, data), "sum over tp");
}

absl::Status RankGroups::MaxOverTensor(View data) {
  if (layout_.tp == 1) return absl::OkStatus();
  return ToStatus(comm_.AllReduce(tensor_, ReduceOp::kMax, data), "maximum over tp");
}

absl::Status RankGroups::ReduceScatterOverTensor(View data) {
  return ToStatus(comm_.ReduceScatter(tensor_, ReduceOp::kSum, data), "reduce-scatter over tp");
}

absl::Status RankGroups::AllGatherOverTensor(View data) {
  return ToStatus(comm_.AllGather(tensor_, data), "all-gather over tp");
}

absl::Status RankGroups::SumScatterOverContext(View data) {
  return ToStatus(comm_.ReduceScatter(context_, ReduceOp::kSum, data),
                  "sum gradients of keys and values over cp");
}

absl::Status RankGroups::GatherOverContext(View data) {
  return ToStatus(comm_.AllGather(context_, data), "gather keys and values over cp");
}

absl::Status RankGroups::SumOverKvCopies(View data) {
  return ToStatus(comm_.AllReduce(kv_copies_, ReduceOp::kSum, data),
                  "sum over the ranks that share kv heads");
}

absl::Status RankGroups::GatherOverShards(View run) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return ToStatus(comm_.AllGather(shards_, run), "gather a bucket of weights from data ranks");
}

absl::Status RankGroups::SumOverShards(View data) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return ToStatus(comm_.AllReduce(shards_, ReduceOp::kSum, data), "sum over data ranks");
}

absl::Status RankGroups::SumOverReplicas(View data) {
  if (replicas() == 1) return absl::OkStatus();
  return ToStatus(comm_.AllReduce(replicas_, ReduceOp::kSum, data), "sum over replicas");
}

absl::Status RankGroups::Start(const CollectiveCall& call, absl::string_view doing,
                               int64_t* ticket) {
  RETURN_IF_ERROR(ToStatus(comm_.Start(call, ticket), doing));
  started_ = *ticket;
  return absl::OkStatus();
}

absl::Status RankGroups::StartSumScatterOverShards(View run, int64_t* ticket) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return Start({.kind = CollectiveKind::kReduceScatter, .group = shards_, .data = run},
               "start to sum a bucket of gradients over data ranks", ticket);
}

absl::Status RankGroups::StartGatherOverShards(View run, int64_t* ticket) {
  if (sharding_.parts == 1) return absl::OkStatus();
  return Start({.kind = CollectiveKind::kAllGather, .group = shards_, .data = run},
               "start to gather a bucket of weights from data ranks", ticket);
}

absl::Status RankGroups::StartSumOverReplicas(View data, int64_t* ticket) {
  if (replicas() == 1) return absl::OkStatus();
  return Start({.kind = CollectiveKind::kAllReduce, .group = replicas_, .data = data},
               "start to sum gradients over data ranks", ticket);
}

absl::Status RankGroups::Wait(int64_t ticket) {
  RETURN_IF_ERROR(ToStatus(comm_.Wait(ticket), "wait for what moves beside the passes"));
  waited_ = std::max(waited_, ticket);
  return absl::OkStatus();
}

absl::Status RankGroups::SumOverTiedCopies(View data) {
  CHECK(is_first_stage() || is_last_stage());
  if (layout_.pp == 1) return absl::OkStatus();
  return ToStatus(comm_.AllReduce(tied_copies_, ReduceOp::kSum, data),
                  "sum over the copies of the tied embedding");
}

absl::Status RankGroups::SumOverWorld(View totals) {
  return ToStatus(comm_.AllReduce(world_, ReduceOp::kSum, totals), "sum over all ranks");
}

absl::Status RankGroups::Exchange(absl::Span<const Transfer> transfers) {
  return ToStatus(comm_.Exchange(transfers.data(), static_cast<int>(transfers.size())),
                  "exchange with the neighbouring stages");
}

absl::Status RankGroups::Barrier() {
  return ToStatus(comm_.Barrier(world_), "wait for all ranks");
}

absl::Status RankGroups::ProveSums() {
  std::vector<double> sum = WorldPart(comm_.rank(), comm_.world_size());
  RETURN_IF_ERROR(ToStatus(
      comm_.AllReduceHost(world_, ReduceOp::kSum, sum.data(), static_cast<int>(sum.size())),
      "add up known values over all ranks"));
  return CheckWorldSum(sum, comm_.world_size());
}

absl::Status RankGroups::Check(absl::string_view doing) const {
  return ToStatus(comm_.FirstFailure(), doing);
}

}  // namespace weft
