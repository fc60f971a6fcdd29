#include "plan/estimate/collective.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

bool Crosses(const RankGroup& group) {
  return group.ranks > group.per_node;
}

// Bytes per second that one rank of a ring over the group moves. Across nodes the node's NICs are
// shared by its slots / per_node groups, so the group's ring has per_node ranks' worth of them.
double RingBytesPerSecond(const Machine& machine, const RankGroup& group) {
  if (!Crosses(group)) return machine.intra_node.bytes_per_s;
  const double network = machine.inter_node.bytes_per_s * group.per_node;
  return group.per_node > 1 ? std::min(machine.intra_node.bytes_per_s, network) : network;
}

// Half an all-reduce: n - 1 rounds of a part each.
double HalfRingSeconds(const Machine& machine, const RankGroup& group, double bytes) {
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
double TreeAllReduceSeconds(const Machine& machine, const RankGroup& group, double bytes) {
  constexpr double kTreeShare = 0.9;  // of the ring's rate
  const double nodes = std::ceil(group.ranks / group.per_node);
  const double latency_s = 2 * ((group.per_node - 1) * machine.intra_node.latency_s +
                                std::log2(nodes) * machine.inter_node.latency_s);
  return latency_s + 2 * bytes / (kTreeShare * RingBytesPerSecond(machine, group));
}

}  // namespace

RankGroup GroupOf(const Machine& machine, int ranks, int stride, int world) {
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

double AllReduceSeconds(const Machine& machine, const RankGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  const double ring_s = 2 * HalfRingSeconds(machine, group, bytes);
  double best_s = ring_s;
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
      const RankGroup inside = {.ranks = group.per_node, .per_node = group.per_node};
      const RankGroup across = {.ranks = std::ceil(group.ranks / group.per_node), .per_node = 1};
      const double staged_s = 2 * HalfRingSeconds(machine, inside, bytes) +
                              2 * HalfRingSeconds(machine, across, bytes / group.per_node);
      best_s = std::min(best_s, staged_s);
    }
  }
  return machine.collective_s + best_s;
}

double AllGatherSeconds(const Machine& machine, const RankGroup& group, double bytes) {
  if (group.ranks <= 1) return 0;
  return machine.collective_s + HalfRingSeconds(machine, group, bytes);
}

double ReduceScatterSeconds(const Machine& machine, const RankGroup& group, double bytes) {
  return AllGatherSeconds(machine, group, bytes);
}

double AllToAllSeconds(const Machine& machine, const RankGroup& group, double bytes) {
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
  const LinkProfile& link = inside ? machine.intra_node : machine.inter_node;
  return link.latency_s + bytes / link.bytes_per_s;
}

}  // namespace weft
