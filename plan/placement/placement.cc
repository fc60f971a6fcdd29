#include "plan/placement/placement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

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

// A block is the hosts of some replicas and of nobody else: where a stage fills whole hosts, those
// that have the same replicas of each stage.
struct Blocks {
  int hosts = 0;     // of a block
  int stages = 1;    // that have hosts of their own
  int of_stage = 0;  // hosts of a block that have the same stage
};

// Ranks of a stage are neighbours (RankGrid), and so are those of a replica in it.
Blocks BlocksOf(const Layout& layout, const Width& width) {
  const int stage_ranks = layout.world_size() / layout.pp;
  if (stage_ranks % width.ranks != 0) {
    const int hosts = layout.pp > 1 ? width.hosts : 1;  // stages share hosts: all are one block
    return {hosts, 1, hosts};
  }
  const int replica_ranks = stage_ranks / layout.dp;
  const bool fills = replica_ranks >= width.ranks && replica_ranks % width.ranks == 0;
  const int of_stage = fills ? replica_ranks / width.ranks : 1;
  return {layout.pp * of_stage, layout.pp, of_stage};
}

using Domains = std::map<std::string, std::vector<int>>;  // hosts, in their order

// Returns how many blocks each domain gets: the next one goes where the fewest are, then where most
// hosts are left. What is whole nowhere is in none.
std::map<std::string, int> SpreadBlocks(const Domains& domains, int count, int hosts) {
  std::map<std::string, int> blocks;
  std::set<std::tuple<int, int64_t, std::string>> next;  // blocks so far, less the hosts left
  for (const auto& [domain, all] : domains) {
    blocks[domain] = 0;
    if (std::ssize(all) >= hosts) next.emplace(0, -std::ssize(all), domain);
  }
  for (int block = 0; block < count && !next.empty(); ++block) {
    const auto [number, less_left, domain] = *next.begin();
    next.erase(next.begin());
    blocks[domain] = number + 1;
    if (-less_left >= int64_t{2} * hosts) next.emplace(number + 1, less_left + hosts, domain);
  }
  return blocks;
}

// Returns the hosts of one block after the other. Blocks are spread evenly over the domains, so
// that one that fails takes the fewest replicas, and each is inside one wherever there is room.
// Blocks of a domain are neighbours: replicas next to each other exchange gradients.
std::vector<int> HostsOfBlocks(absl::Span<const HostOffer> hosts, const Width& width,
                               const Blocks& blocks) {
  Domains domains;
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i) {
    const HostOffer& host = hosts[static_cast<size_t>(i)];
    if (host.slots >= width.ranks) domains[host.domain].push_back(i);
  }
  const std::map<std::string, int> spread =
      SpreadBlocks(domains, width.hosts / blocks.hosts, blocks.hosts);
  std::vector<int> order;
  std::vector<std::vector<int>> rest;
  for (const auto& [domain, all] : domains) {
    const auto taken = all.begin() + int64_t{spread.at(domain)} * blocks.hosts;
    order.insert(order.end(), all.begin(), taken);
    rest.emplace_back(taken, all.end());
  }
  // A block that is whole nowhere crosses as few borders as it can.
  std::stable_sort(rest.begin(), rest.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const std::vector<int>& some : rest) order.insert(order.end(), some.begin(), some.end());
  order.resize(static_cast<size_t>(width.hosts));
  return order;
}

// Returns the index among the hosts of blocks of each host in the order of ranks.
std::vector<int> PlacesInBlocks(const Width& width, const Blocks& blocks) {
  std::vector<int> places;
  const int per_stage = width.hosts / blocks.stages;
  for (int host = 0; host < width.hosts; ++host) {
    const int stage = host / per_stage, place = host % per_stage;
    places.push_back(place / blocks.of_stage * blocks.hosts + stage * blocks.of_stage +
                     place % blocks.of_stage);
  }
  return places;
}

// "replicas 0-1 are in rack1, 2-3 in rack2: ..."; empty where nothing is known of domains, or there
// is one replica.
std::string DomainsReason(const Layout& layout, absl::Span<const HostOffer> hosts,
                          const std::vector<PlacedRank>& ranks) {
  constexpr size_t kMostNamed = 8;
  const bool is_known = std::any_of(hosts.begin(), hosts.end(),
                                    [](const HostOffer& host) { return !host.domain.empty(); });
  if (layout.dp == 1 || !is_known) return "";
  std::vector<std::set<std::string>> of_replica(static_cast<size_t>(layout.dp));
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const int host = ranks[static_cast<size_t>(rank)].host;
    const std::string& domain = hosts[static_cast<size_t>(host)].domain;
    of_replica[static_cast<size_t>(layout.grid().CoordinatesOf(rank).dp)].insert(domain);
  }
  std::map<std::string, int> inside;
  int across = 0;
  for (const std::set<std::string>& domains : of_replica) {
    if (domains.size() == 1) {
      ++inside[*domains.begin()];
    } else {
      ++across;
    }
  }
  std::vector<std::string> parts;
  int most = 0;
  for (const auto& [domain, count] : inside) {
    most = std::max(most, count);
    if (parts.size() == kMostNamed) parts.push_back("...");
    if (parts.size() > kMostNamed) continue;
    parts.push_back(absl::StrCat(count, " in ", domain.empty() ? "no domain" : domain));
  }
  if (across > 0) parts.push_back(absl::StrCat(across, " across domains"));
  return absl::StrCat("of ", layout.dp, " replicas ", absl::StrJoin(parts, ", "),
                      ": one domain's failure takes ", most + across, " at most");
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

absl::StatusOr<Placement> PlaceRanks(const Layout& layout, absl::Span<const HostOffer> hosts) {
  for (const HostOffer& host : hosts) CHECK(host.slots >= 1);
  const std::vector<Width> widths = Widths(layout, hosts);
  if (widths.empty()) {
    int64_t slots = 0;
    for (const HostOffer& host : hosts) slots += host.slots;
    return absl::InvalidArgumentError(absl::StrCat(
        "placement: ", layout.world_size(), " ranks have no place on ", hosts.size(),
        hosts.size() == 1 ? " host of " : " hosts of ", slots, slots == 1 ? " slot" : " slots",
        " with as many ranks on each; use fewer ranks, or more hosts alike"));
  }
  const Width& width = widths.front();
  const Blocks blocks = BlocksOf(layout, width);
  const std::vector<int> chosen = HostsOfBlocks(hosts, width, blocks);
  const std::vector<int> places = PlacesInBlocks(width, blocks);
  Placement placement{.ranks = {},
                      .ranks_per_host = width.ranks,
                      .reasons = ReasonsOf(layout, hosts, width, chosen)};
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const int host = places[static_cast<size_t>(rank / width.ranks)];
    placement.ranks.push_back({chosen[static_cast<size_t>(host)], rank % width.ranks});
  }
  std::string domains = DomainsReason(layout, hosts, placement.ranks);
  if (!domains.empty()) placement.reasons.push_back(std::move(domains));
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
