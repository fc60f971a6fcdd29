#include "worker/links/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "worker/backend/loader.h"
#include "worker/links/link_groups.h"
#include "worker/links/link_timer.h"

namespace weft {
namespace {

// Up to where a link's rate no longer grows: links of GPUs are faster than a host's memory.
constexpr int64_t kHostMessageBytes[] = {4, 4096, 65536, 1 << 20, 1 << 23};
constexpr int64_t kDeviceMessageBytes[] = {4, 4096, 65536, 1 << 20, 1 << 23, 1 << 26, 1 << 28};

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Span<const int64_t> MessageBytes(BackendKind backend) {
  if (backend == BackendKind::kCpu) return kHostMessageBytes;
  return kDeviceMessageBytes;
}

class LinkProbe {
 public:
  // `world`: the group of all ranks. `data`: as large as the largest message and 4 bytes a rank.
  LinkProbe(Device& device, Comm& comm, int world, const RanksOnNodes& spread,
            absl::Span<const int64_t> message_bytes, double seconds, void* data,
            const std::function<void()>& moved)
      : comm_(comm),
        spread_(spread),
        groups_(GroupsToMeasure(spread)),
        message_bytes_(message_bytes),
        most_s_(seconds / kMostOfTime),
        data_(data),
        moved_(moved),
        timer_(device, comm, world,
               seconds / static_cast<double>(message_bytes.size() *
                                             (kTransferKinds + kCollectives * groups_.size())),
               &NowSeconds) {}

  absl::StatusOr<std::vector<CollectivePoint>> Run() {
    const int rank = comm_.rank();
    if (spread_.per_node > 1) {
      RETURN_IF_ERROR(MeasureTransfers(PeerInside(spread_, rank), 1));
    }
    if (spread_.nodes > 1) RETURN_IF_ERROR(MeasureTransfers(PeerAcross(spread_, rank), 2));
    for (const LinkGroups& groups : groups_) RETURN_IF_ERROR(MeasureGroups(groups));
    return std::move(points_);
  }

 private:
  static constexpr size_t kTransferKinds = 2;
  static constexpr size_t kCollectives = 3;
  static constexpr double kMostOfTime = 8;  // no size shall take more than this part of the time

  // There and back, all pairs at once.
  absl::Status MeasureTransfers(int peer, int nodes) {
    return Grow({.collective = Collective::kSendReceive, .ranks = 2, .nodes = nodes}, 2,
                [&](View view) { return PingPong(peer, view); });
  }

  absl::Status MeasureGroups(const LinkGroups& groups) {
    const std::vector<int> members = MembersOf(groups, comm_.rank());
    int group = 0;
    RETURN_IF_ERROR(ToStatus(comm_.NewGroup(GroupUse::kBlocking, members.data(),
                                            static_cast<int>(members.size()), &group)));
    CollectivePoint point{.ranks = groups.ranks, .nodes = groups.nodes};
    point.collective = Collective::kAllReduce;
    RETURN_IF_ERROR(
        Grow(point, 1, [&](View view) { return comm_.AllReduce(group, ReduceOp::kSum, view); }));
    point.collective = Collective::kReduceScatter;
    RETURN_IF_ERROR(Grow(
        point, 1, [&](View view) { return comm_.ReduceScatter(group, ReduceOp::kSum, view); }));
    point.collective = Collective::kAllGather;
    return Grow(point, 1, [&](View view) { return comm_.AllGather(group, view); });
  }

  // `call` sends a message `times` times. Ends before a size that, by the one before, would take
  // too long.
  template <typename Call>
  absl::Status Grow(CollectivePoint point, int times, const Call& call) {
    double byte_s = 0;
    for (const int64_t bytes : message_bytes_) {
      if (3 * byte_s * static_cast<double>(bytes) > most_s_) break;
      int64_t elements = bytes / 4;
      const bool halves = point.collective == Collective::kReduceScatter ||
                          point.collective == Collective::kAllGather;
      if (halves) {  // a range for each
        elements = std::max<int64_t>(1, elements / point.ranks) * point.ranks;
      }
      const View view{data_, 1, elements, DType::kF32};
      double seconds = 0;
      ASSIGN_OR_RETURN(seconds, timer_.Time([&] { return ToStatus(call(view)); }));
      point.bytes = view.bytes();
      point.seconds = seconds / times;
      points_.push_back(point);
      moved_();
      if (bytes > 1 << 20) byte_s = seconds / static_cast<double>(bytes);
    }
    return absl::OkStatus();
  }

  BackendStatus PingPong(int peer, View data) {
    if (peer < 0) return {};
    const bool first = comm_.rank() < peer;
    for (const bool send : {first, !first}) {
      const Transfer transfer{.send = send, .peer = peer, .data = data};
      if (BackendStatus status = comm_.Exchange(&transfer, 1); !status.ok()) return status;
    }
    return {};
  }

  Comm& comm_;
  const RanksOnNodes spread_;
  const std::vector<LinkGroups> groups_;
  const absl::Span<const int64_t> message_bytes_;
  const double most_s_;
  void* const data_;
  const std::function<void()>& moved_;
  LinkTimer timer_;
  std::vector<CollectivePoint> points_;
};

}  // namespace

absl::StatusOr<LinkTimes> MeasureLinks(BackendKind backend, Device& device, Comm& comm, double node,
                                       double seconds, const std::function<void()>& moved) {
  const int ranks = comm.world_size();
  if (ranks < 2) {
    return absl::FailedPreconditionError("links are measured by 2 or more ranks at once");
  }
  const LinkGroups all{.ranks = ranks};
  const std::vector<int> members = MembersOf(all, comm.rank());
  int world = 0;
  RETURN_IF_ERROR(ToStatus(comm.NewGroup(GroupUse::kBlocking, members.data(), ranks, &world)));
  std::vector<double> nodes(static_cast<size_t>(ranks));
  nodes[static_cast<size_t>(comm.rank())] = node;
  RETURN_IF_ERROR(ToStatus(comm.AllReduceHost(world, ReduceOp::kSum, nodes.data(), ranks)));
  ASSIGN_OR_RETURN(const RanksOnNodes spread, SpreadOf(nodes));
  const absl::Span<const int64_t> message_bytes = MessageBytes(backend);
  const int64_t largest = message_bytes.back() + 4 * ranks;
  void* const data = device.Allocate(largest);
  if (data == nullptr) return absl::ResourceExhaustedError("no memory to measure with");
  device.Zero(View{data, 1, largest / 4, DType::kF32});
  auto points = LinkProbe(device, comm, world, spread, message_bytes, seconds, data, moved).Run();
  device.Free(data, largest);
  RETURN_IF_ERROR(points.status());
  return LinkTimes{
      .nodes = spread.nodes, .ranks_per_node = spread.per_node, .points = *std::move(points)};
}

std::string LinksJson(const LinkTimes& links) {
  std::vector<std::string> items;
  items.reserve(links.points.size());
  for (const CollectivePoint& point : links.points) {
    items.push_back(absl::StrFormat(
        R"({"collective": "%s", "ranks": %d, "nodes": %d, "bytes": %d, "seconds": %.6g})",
        WordOf(point.collective), point.ranks, point.nodes, point.bytes, point.seconds));
  }
  return absl::StrFormat("\"ranks\": %d, \"nodes\": %d, \"collectives\": [%s]",
                         links.nodes * links.ranks_per_node, links.nodes,
                         absl::StrJoin(items, ", "));
}

}  // namespace weft
