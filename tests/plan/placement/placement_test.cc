// plan/placement: every rank has one slot of its own, tp groups stay together, and what is left
// over is told.
#include "plan/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "plan/spec/grid.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<HostOffer> Hosts(const std::vector<int>& slots) {
  std::vector<HostOffer> hosts;
  for (const int each : slots) hosts.push_back({absl::StrCat("h", hosts.size()), each});
  return hosts;
}

TEST(Place, GivesEachRankOfAnyLayoutASlotOfItsOwn) {
  for (const int dp : {1, 2, 3}) {
    for (const int pp : {1, 2, 4}) {
      for (const int tp : {1, 2, 4}) {
        for (const std::vector<int>& slots : {std::vector<int>{8, 8, 8, 8, 8, 8},
                                              {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
                                              {48},
                                              {2, 8, 8, 8, 8, 8, 8, 3}}) {
          const Layout layout = {.dp = dp, .pp = pp, .tp = tp};
          const std::vector<HostOffer> hosts = Hosts(slots);
          const absl::StatusOr<Placement> placement = PlaceRanks(layout, hosts);
          ASSERT_TRUE(placement.ok()) << LayoutText(layout) << placement.status();
          std::set<std::pair<int, int>> taken;
          std::map<int, int> on_host;
          for (const PlacedRank& place : placement->ranks) {
            EXPECT_LT(place.slot, slots[static_cast<size_t>(place.host)]);
            EXPECT_TRUE(taken.insert({place.host, place.slot}).second);
            EXPECT_LE(++on_host[place.host], placement->ranks_per_host);
          }
          EXPECT_EQ(std::ssize(taken), layout.world_size());
          for (int rank = 0; rank < layout.world_size(); ++rank) {
            for (const int peer : layout.grid().GroupOf(Axis::kTensor, rank)) {
              EXPECT_EQ(placement->ranks[static_cast<size_t>(peer)].host,
                        placement->ranks[static_cast<size_t>(rank)].host)
                  << LayoutText(layout);
            }
          }
        }
      }
    }
  }
}

TEST(Place, LeavesSlotsIdleWhereATensorGroupWouldCrossHosts) {
  const std::vector<HostOffer> hosts = Hosts({6, 6});
  const absl::StatusOr<Placement> placement = PlaceRanks({.dp = 2, .tp = 4}, hosts);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->ranks_per_host, 4);
  EXPECT_THAT(placement->reasons,
              ElementsAre("each tp group of 4 is inside one host",
                          "idle: 2 of 6 slots of h0, 2 of 6 slots of h1; each host has 4 ranks, so "
                          "that none waits for a fuller one"));
}

TEST(Place, LetsAGroupCrossHostsWhereItHasTo) {
  const absl::StatusOr<Placement> placement = PlaceRanks({.dp = 1, .tp = 8}, Hosts({4, 4}));
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->reasons, ElementsAre(HasSubstr("tp groups of 8 cross hosts of 4 ranks")));
}

TEST(Place, TakesAsManyRanksOnEachHostAsTheSmallestHas) {
  const absl::StatusOr<Placement> placement = PlaceRanks({.dp = 12}, Hosts({8, 4, 4}));
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->ranks_per_host, 4);
  EXPECT_THAT(placement->reasons, ElementsAre(HasSubstr("idle: 4 of 8 slots of h0")));
}

TEST(Place, LeavesAHostOutThatIsTooSmall) {
  const absl::StatusOr<Placement> placement = PlaceRanks({.dp = 16}, Hosts({8, 1, 8}));
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->reasons, ElementsAre("not used: h1; 16 ranks take 2 hosts"));
}

// Two stages of two hosts each: a rack holds both stages of its replicas.
TEST(Place, PutsAReplicasStagesIntoOneDomainAndReplicasApart) {
  std::vector<HostOffer> hosts = Hosts({4, 4, 4, 4});
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].domain = i % 2 == 0 ? "rack a" : "rack b";
  const Layout layout = {.dp = 2, .pp = 2, .tp = 4};
  const absl::StatusOr<Placement> placement = PlaceRanks(layout, hosts);
  ASSERT_TRUE(placement.ok());
  std::map<int, std::set<std::string>> domains;  // of each replica
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const int host = placement->ranks[static_cast<size_t>(rank)].host;
    domains[layout.grid().CoordinatesOf(rank).dp].insert(hosts[static_cast<size_t>(host)].domain);
  }
  EXPECT_THAT(domains[0], ElementsAre("rack a"));
  EXPECT_THAT(domains[1], ElementsAre("rack b"));
  EXPECT_EQ(PlacementText(layout, hosts, *placement),
            "  h0 (rack a): ranks 0-3, stage 0, replica 0\n"
            "  h1 (rack b): ranks 4-7, stage 0, replica 1\n"
            "  h2 (rack a): ranks 8-11, stage 1, replica 0\n"
            "  h3 (rack b): ranks 12-15, stage 1, replica 1\n"
            "  each tp group of 4 is inside one host\n"
            "  of 2 replicas 1 in rack a, 1 in rack b: one domain's failure takes 1 at most\n");
}

// How many hosts of each domain are used.
std::map<std::string, int> UsedOf(const std::vector<HostOffer>& hosts, const Placement& placement) {
  std::set<int> used;
  for (const PlacedRank& rank : placement.ranks) used.insert(rank.host);
  std::map<std::string, int> counts;
  for (const int host : used) ++counts[hosts[static_cast<size_t>(host)].domain];
  return counts;
}

// One rack would hold them all, and its switch would end the job.
TEST(Place, SpreadsReplicasOverDomainsWhereOneWouldHoldThemAll) {
  std::vector<HostOffer> hosts = Hosts({4, 4, 4, 4, 4, 4, 4, 4, 4, 4});
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].domain = i < 6 ? "a" : i < 9 ? "b" : "c";
  for (const Layout& layout : {Layout{.dp = 16}, Layout{.dp = 2, .pp = 2, .tp = 4},
                               Layout{.dp = 2, .tp = 8}, Layout{.dp = 4, .pp = 4}}) {
    SCOPED_TRACE(LayoutText(layout));
    const absl::StatusOr<Placement> placement = PlaceRanks(layout, hosts);
    ASSERT_TRUE(placement.ok());
    const std::map<std::string, int> used = UsedOf(hosts, *placement);
    if (layout.dp == 16) {
      EXPECT_EQ(used, (std::map<std::string, int>{{"a", 2}, {"b", 1}, {"c", 1}}));
      EXPECT_THAT(placement->reasons.back(),
                  "of 16 replicas 8 in a, 4 in b, 4 in c: one domain's failure takes 8 at most");
    } else if (layout.dp == 2) {
      EXPECT_EQ(used, (std::map<std::string, int>{{"a", 2}, {"b", 2}}));
      EXPECT_THAT(placement->reasons.back(), HasSubstr("1 in a, 1 in b"));
    } else {
      EXPECT_EQ(used, (std::map<std::string, int>{{"a", 4}})) << "each host has all replicas";
    }
  }
}

// Both halves of a replica that fills two hosts stay together.
TEST(Place, LetsAReplicaCrossDomainsOnlyWhereNoneHasRoom) {
  std::vector<HostOffer> hosts = Hosts({4, 4, 4, 4, 4, 4});
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].domain = i < 3 ? "a" : "b";
  const Layout layout = {.dp = 3, .tp = 8};
  const absl::StatusOr<Placement> placement = PlaceRanks(layout, hosts);
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->reasons.back(),
              "of 3 replicas 1 in a, 1 in b, 1 across domains: one domain's failure takes 2 at "
              "most");
}

TEST(Place, SaysWhatIsMissing) {
  EXPECT_EQ(
      PlaceRanks({.dp = 9}, Hosts({4, 4})).status().message(),
      "placement: 9 ranks have no place on 2 hosts of 8 slots with as many ranks on each; use "
      "fewer ranks, or more hosts alike");
  EXPECT_FALSE(PlaceRanks({.dp = 1}, {}).ok());
}

TEST(Place, NeedsNoReasonWhereAllIsEven) {
  EXPECT_THAT(PlaceRanks({.dp = 8}, Hosts({4, 4}))->reasons, IsEmpty());
}

}  // namespace
}  // namespace weft
