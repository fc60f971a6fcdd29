#include "plan/estimate/collective.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft {
namespace {

bool Crosses(const PricedGroup& group) {
  return group.ranks > group.per_node;
}

// Bytes per second that one rank of a ring over the group moves. Across nodes the node's NICs are
// shared by its slots / per_node groups, so the group's ring has per_node ranks' worth of them.
double RingBytesPerSecond(const Machine& machine, const PricedGroup& group) {
  if (!Crosses(group)) return machine.intra_node.bytes_per_s;
  const double network = machine.inter_node.bytes_per_s * group.per_node;
  return group.per_node > 1 ? std::min(machine.intra_node.bytes_per_s, network) : network;
}

// Half an all-reduce: n - 1 rounds of a part each.
double HalfRingSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const double rounds = group.ranks - 1;
  const double nodes = Crosses(group) ? std::ceil(group.ranks / group.per_node) : 1;
  const double network_rounds = Crosses(group) ? std::min(nodes, rounds) : 0;
  const double latency_s = (rounds - network_rounds) * machine.intra_node.latency_s +
                           network_rounds * machine.inter_node.latency_s;
  return latency_s + rounds / group.ranks * bytes / RingBytesPerSecond(machine, group);
}

// Chain inside a node, binary tree across nodes, there and back; the whole tensor passes each link
// (Sanders, Speck & Traeff, 2009).
double TreeAllReduceSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  constexpr double kTreeShare = 0.9;  // of the ring's rate
  const double nodes = std::ceil(group.ranks / group.per_node);
  const double latency_s = 2 * ((group.per_node - 1) * machine.intra_node.latency_s +
                                std::log2(nodes) * machine.inter_node.latency_s);
  return latency_s + 2 * bytes / (kTreeShare * RingBytesPerSecond(machine, group));
}

double ModelledAllReduce(const Machine& machine, const PricedGroup& group, double bytes) {
  double best_s = 2 * HalfRingSeconds(machine, group, bytes);
  if (machine.gpu && machine.intra_node.switch_reduces && !Crosses(group)) {
    // The switch adds up: every byte leaves a rank once (NVLink SHARP).
    constexpr double kStartSeconds = 25e-6;
    constexpr double kSwitchShare = 0.85;  // of the link's rate
    best_s =
        std::min(best_s, kStartSeconds + bytes / (kSwitchShare * machine.intra_node.bytes_per_s));
  }
  if (machine.gpu && Crosses(group)) {
    best_s = std::min(best_s, TreeAllReduceSeconds(machine, group, bytes));
    if (group.per_node > 1) {
      // Reduce-scatter inside, all-reduce of each part across, all-gather inside.
      const PricedGroup inside = {.ranks = group.per_node, .per_node = group.per_node};
      const PricedGroup across = {.ranks = std::ceil(group.ranks / group.per_node), .per_node = 1};
      const double staged_s = 2 * HalfRingSeconds(machine, inside, bytes) +
                              2 * HalfRingSeconds(machine, across, bytes / group.per_node);
      best_s = std::min(best_s, staged_s);
    }
  }
  return best_s;
}

// Each rank takes its part from all others and adds them, read once and written once.
double RankOrderReduceScatter(const Machine& machine, const PricedGroup& group, double bytes) {
  const double moved = (1 + 1 / group.ranks) * bytes;
  return AllToAllSeconds(machine, group, bytes) + moved / machine.memory_bytes_per_s;
}

double ModelledSend(const Machine& machine, const PricedGroup& group, double bytes) {
  const LinkProfile& link = Crosses(group) ? machine.inter_node : machine.intra_node;
  return link.latency_s + bytes / link.bytes_per_s;
}

using Model = double (*)(const Machine&, const PricedGroup&, double bytes);

// The two measured sizes that `bytes` lies between, over as many nodes, and of these among as many
// ranks, as are nearest to the group's; one of them null beyond the ends, both where nothing was
// measured: inside a node says nothing of what crosses its border, nor the other way round.
struct Neighbours {
  const CollectivePoint* below = nullptr;
  const CollectivePoint* above = nullptr;
};

Neighbours NeighboursOf(const Machine& machine, Collective collective, const PricedGroup& group,
                        double bytes) {
  Neighbours found;
  if (machine.collectives == nullptr) return found;
  const double nodes = Crosses(group) ? std::ceil(group.ranks / group.per_node) : 1;
  const CollectivePoint* nearest = nullptr;
  const auto away = [&](const CollectivePoint& point) {
    return std::pair(Apart(nodes, point.nodes), Apart(group.ranks, point.ranks));
  };
  for (const CollectivePoint& point : *machine.collectives) {
    if (point.collective != collective || (point.nodes > 1) != Crosses(group)) continue;
    if (nearest == nullptr || away(point) < away(*nearest)) nearest = &point;
  }
  for (const CollectivePoint& point : *machine.collectives) {
    if (nearest == nullptr || point.collective != collective) continue;
    if (point.ranks != nearest->ranks || point.nodes != nearest->nodes) continue;
    const bool is_below = static_cast<double>(point.bytes) < bytes;
    const CollectivePoint*& place = is_below ? found.below : found.above;
    if (place == nullptr || (point.bytes > place->bytes) == is_below) place = &point;
  }
  return found;
}

// Returns what was measured, if it was, else what the model says: measured seconds on a straight
// line of logarithms between two sizes, by the model's growth beyond them and to other numbers of
// ranks and nodes.
double Seconds(const Machine& machine, Collective collective, const PricedGroup& group,
               double bytes, Model model) {
  const double modelled_s = model(machine, group, bytes);
  if (bytes <= 0) return modelled_s;
  const auto [below, above] = NeighboursOf(machine, collective, group, bytes);
  const CollectivePoint* point = above != nullptr ? above : below;
  if (point == nullptr) return modelled_s;
  const auto point_bytes = static_cast<double>(point->bytes);
  const auto ranks = static_cast<double>(point->ranks);
  const auto modelled = [&](double size) {
    return model(machine, {.ranks = ranks, .per_node = ranks / point->nodes}, size);
  };
  double seconds = point->seconds;
  if (below == nullptr || above == nullptr) {
    seconds *= modelled(bytes) / modelled(point_bytes);
  } else {
    const auto below_bytes = static_cast<double>(below->bytes);
    const double share = std::log(bytes / below_bytes) / std::log(point_bytes / below_bytes);
    seconds = std::exp((1 - share) * std::log(below->seconds) + share * std::log(seconds));
  }
  return seconds * modelled_s / modelled(bytes);
}

}  // namespace

PricedGroup GroupOf(const Machine& machine, int ranks, int stride, int world) {
  const double n = ranks;
  if (world <= machine.slots_per_node) return {.ranks = n, .per_node = n};
  // A run of neighbouring ranks that no node's end cuts stays inside.
  const double slots = machine.slots_per_node;
  if (static_cast<double>(ranks) * stride <= slots) {
    const bool aligned = machine.slots_per_node % (ranks * stride) == 0;
    return {.ranks = n, .per_node = aligned ? n : std::max(1.0, std::floor(n / 2))};
  }
  return {.ranks = n, .per_node = std::max(1.0, std::floor(slots / stride))};
}

double AllReduceSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  if (machine.adds_in_rank_order) {
    return RankOrderReduceScatter(machine, group, bytes) + AllToAllSeconds(machine, group, bytes);
  }
  return machine.collective_s +
         Seconds(machine, Collective::kAllReduce, group, bytes, &ModelledAllReduce);
}

double AllGatherSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  return machine.collective_s +
         Seconds(machine, Collective::kAllGather, group, bytes, &HalfRingSeconds);
}

double ReduceScatterSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  if (machine.adds_in_rank_order) return RankOrderReduceScatter(machine, group, bytes);
  return machine.collective_s +
         Seconds(machine, Collective::kReduceScatter, group, bytes, &HalfRingSeconds);
}

double AllToAllSeconds(const Machine& machine, const PricedGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const double n = group.ranks;
  const double inside = std::min(n, group.per_node);
  const double inside_s = (inside - 1) / n * bytes / machine.intra_node.bytes_per_s;
  if (!Crosses(group)) {
    return machine.collective_s + (n - 1) * machine.intra_node.latency_s + inside_s;
  }
  const double outside_s = (n - inside) / n * bytes / machine.inter_node.bytes_per_s;
  return machine.collective_s + (n - 1) * machine.inter_node.latency_s +
         std::max(inside_s, outside_s);
}

double SendSeconds(const Machine& machine, int span, int world, double bytes) {
  const bool inside = world <= machine.slots_per_node ||
                      (span <= machine.slots_per_node && machine.slots_per_node % span == 0);
  const PricedGroup pair = {.ranks = 2, .per_node = inside ? 2.0 : 1.0};
  return Seconds(machine, Collective::kSendReceive, pair, bytes, &ModelledSend);
}

}  // namespace weft
