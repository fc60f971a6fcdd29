#include "plan/placement/placement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/spec/grid.h"

namespace weft {
namespace {

// A number of ranks on each host, and how many hosts take so many.
struct Width {
  int ranks = 0;
  int hosts = 0;  // that are needed
  bool keeps_tp = false;
};

int HostsWith(absl::Span<const HostOffer> hosts, int slots) {
  return static_cast<int>(std::count_if(
      hosts.begin(), hosts.end(), [&](const HostOffer& host) { return host.slots >= slots; }));
}

// Returns the widths for which there are hosts, those that keep tp groups whole first, then those
// with the fewest hosts.
std::vector<Width> Widths(const Layout& layout, absl::Span<const HostOffer> hosts) {
  std::set<int> numbers;
  for (const HostOffer& host : hosts) {
    numbers.insert(host.slots);
    if (host.slots >= layout.tp) numbers.insert(host.slots / layout.tp * layout.tp);
  }
  std::vector<Width> widths;
  for (const int ranks : numbers) {
    const int needed = (layout.world_size() + ranks - 1) / ranks;
    if (HostsWith(hosts, ranks) < needed) continue;
    widths.push_back({std::min(ranks, layout.world_size()), needed, ranks % layout.tp == 0});
  }
  std::stable_sort(widths.begin(), widths.end(), [](const Width& a, const Width& b) {
    return a.keeps_tp != b.keeps_tp ? a.keeps_tp : a.hosts < b.hosts;
  });
  return widths;
}

// Returns `count` hosts with enough slots, those of one domain together, the largest domains first:
// fewer borders are crossed so. Hosts keep their order otherwise.
std::vector<int> Chosen(absl::Span<const HostOffer> hosts, const Width& width) {
  std::map<std::string, int> sizes;
  for (const HostOffer& host : hosts) {
    if (host.slots >= width.ranks) ++sizes[host.domain];
  }
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i) {
    if (hosts[static_cast<size_t>(i)].slots >= width.ranks) order.push_back(i);
  }
  const auto domain = [&](int host) -> const std::string& {
    return hosts[static_cast<size_t>(host)].domain;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (sizes[domain(a)] != sizes[domain(b)]) return sizes[domain(a)] > sizes[domain(b)];
    return domain(a) < domain(b);
  });
  order.resize(static_cast<size_t>(width.hosts));
  return order;
}

// Ranks of a stage are neighbours (RankGrid), so that a stage fills hosts of its own if it fills
// whole ones. Then host `place` of each stage has the same replicas: these are put beside each
// other. Returns the position among the chosen hosts of each host in the order of ranks.
std::vector<int> HostsOfReplicasTogether(const Layout& layout, const Width& width) {
  std::vector<int> position(static_cast<size_t>(width.hosts));
  const int stage_ranks = layout.world_size() / layout.pp;
  const bool whole = layout.pp > 1 && stage_ranks % width.ranks == 0;
  const int per_stage = whole ? stage_ranks / width.ranks : width.hosts;
  for (int host = 0; host < width.hosts; ++host) {
    position[static_cast<size_t>(host)] =
        whole ? host % per_stage * layout.pp + host / per_stage : host;
  }
  return position;
}

std::vector<std::string> ReasonsOf(const Layout& layout, absl::Span<const HostOffer> hosts,
                                   const Width& width, absl::Span<const int> chosen) {
  std::vector<std::string> reasons;
  if (layout.tp > 1) {
    reasons.push_back(width.keeps_tp
                          ? absl::StrCat("each tp group of ", layout.tp, " is inside one host")
                          : absl::StrCat("tp groups of ", layout.tp, " cross hosts of ",
                                         width.ranks, " ranks: no number of ranks per host that ",
                                         layout.tp, " divides has enough hosts"));
  }
  const std::set<int> used(chosen.begin(), chosen.end());
  std::vector<std::string> idle, partly;
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i) {
    const HostOffer& host = hosts[static_cast<size_t>(i)];
    if (used.count(i) == 0) {
      idle.push_back(host.name);
    } else if (host.slots > width.ranks) {
      partly.push_back(
          absl::StrCat(host.slots - width.ranks, " of ", host.slots, " slots of ", host.name));
    }
  }
  if (!partly.empty()) {
    reasons.push_back(absl::StrCat("idle: ", absl::StrJoin(partly, ", "), "; each host has ",
                                   width.ranks, " ranks, so that none waits for a fuller one"));
  }
  if (!idle.empty()) {
    reasons.push_back(absl::StrCat("not used: ", absl::StrJoin(idle, ", "), "; ",
                                   layout.world_size(), " ranks take ", width.hosts,
                                   width.hosts == 1 ? " host" : " hosts"));
  }
  return reasons;
}

}  // namespace

absl::StatusOr<Placement> Place(const Layout& layout, absl::Span<const HostOffer> hosts) {
  for (const HostOffer& host : hosts) CHECK(host.slots >= 1);
  const std::vector<Width> widths = Widths(layout, hosts);
  if (widths.empty()) {
    int64_t slots = 0;
    for (const HostOffer& host : hosts) slots += host.slots;
    return absl::InvalidArgumentError(absl::StrCat(
        "placement: ", layout.world_size(), " ranks have no place on ", hosts.size(), " hosts of ",
        slots, " slots with as many ranks on each; use fewer ranks, or more hosts alike"));
  }
  const Width& width = widths.front();
  const std::vector<int> chosen = Chosen(hosts, width);
  const std::vector<int> position = HostsOfReplicasTogether(layout, width);
  Placement placement{.ranks = {},
                      .ranks_per_host = width.ranks,
                      .reasons = ReasonsOf(layout, hosts, width, chosen)};
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const int host = position[static_cast<size_t>(rank / width.ranks)];
    placement.ranks.push_back({chosen[static_cast<size_t>(host)], rank % width.ranks});
  }
  return placement;
}

std::string PlacementText(const Layout& layout, absl::Span<const HostOffer> hosts,
                          const Placement& placement, int most_hosts) {
  const RankGrid grid = layout.grid();
  const int width = placement.ranks_per_host;
  const int used = (layout.world_size() + width - 1) / width;
  const auto range = [](absl::string_view one, absl::string_view many, int first, int last) {
    return first == last ? absl::StrCat(one, " ", first)
                         : absl::StrCat(many, " ", first, "-", last);
  };
  std::string text;
  for (int host = 0; host < used; ++host) {
    if (used > most_hosts && host == most_hosts - 1 && host < used - 1) {
      absl::StrAppend(&text, "  ... ", used - most_hosts, " more ...\n");
      host = used - 1;
    }
    const int first = host * width;
    const int last = std::min(first + width, layout.world_size()) - 1;
    const HostOffer& offer =
        hosts[static_cast<size_t>(placement.ranks[static_cast<size_t>(first)].host)];
    const GridCoordinates from = grid.CoordinatesOf(first), to = grid.CoordinatesOf(last);
    absl::StrAppend(
        &text, "  ", offer.name, offer.domain.empty() ? "" : absl::StrCat(" (", offer.domain, ")"),
        ": ", range("rank", "ranks", first, last), ", ", range("stage", "stages", from.pp, to.pp));
    if (from.pp == to.pp && layout.dp > 1) {
      absl::StrAppend(&text, ", ", range("replica", "replicas", from.dp, to.dp));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const std::string& reason : placement.reasons) absl::StrAppend(&text, "  ", reason, "\n");
  return text;
}

}  // namespace weft
